// Pages that another machine writes or reads.
#include "runtime/kv/BlockManager.h"
#include "runtime/kv/Mutants.h"

#include <algorithm>

namespace llmopt::runtime::kv {

Transfer *BlockManager::find(TransferId id) {
  if (id.slot >= transfers.size())
    return nullptr;
  Transfer &transfer = transfers[id.slot];
  if (mutant(Mutant::LateNoteCounts))
    return &transfer;
  return transfer.generation == id.generation && transfer.phase != Transfer::Phase::None ? &transfer
                                                                                         : nullptr;
}

Reply BlockManager::newTransfer(SequenceId sequence, TransferId &id, Transfer *&result) {
  auto found = std::ranges::find_if(
      transfers, [](const Transfer &t) { return t.phase == Transfer::Phase::None; });
  if (found == transfers.end())
    return Reply::NoTableSlot;
  found->phase = Transfer::Phase::Reserved;
  found->send = false;
  found->tokens = 0;
  found->sequence = sequence;
  found->items.clear();
  id = {static_cast<uint32_t>(found - transfers.begin()), found->generation};
  result = &*found;
  return Reply::Ok;
}

Reply BlockManager::reserveTransfer(SequenceId id, uint32_t tokens, TransferId &transferId) {
  Sequence *s = find(id);
  if (!s)
    return Reply::UnknownSequence;
  if (s->phase != Phase::Running)
    return Reply::SwappedOut;
  if (s->rows > 0 || s->transfer != kNoSlot)
    return Reply::InFlight;
  if (tokens == 0)
    return Reply::InvalidArgument;
  if (tokens > config.maxTokens - s->bound)
    return Reply::TooLong;
  // The last page has to be its own and complete before the peer writes behind it.
  bool unready = contentIsComing(id.slot);
  for (uint32_t g = 0; g < groups(); ++g)
    unready = unready || tailIsShared(id.slot, g);
  if (unready)
    return Reply::InFlight;
  Demand demand = growth(id.slot, tokens), all = demand;
  all += aside;
  if (!pages->feasible(all))
    return lackFor(heldAt(uint64_t{s->bound} + tokens, tokens));
  Transfer *transfer = nullptr;
  if (Reply reply = newTransfer(id, transferId, transfer); reply != Reply::Ok)
    return reply;
  pages->prepare(demand);
  appendPages(id.slot, s->bound + tokens);
  s->bound += tokens;
  s->transfer = transferId.slot;
  transfer->tokens = tokens;
  return Reply::Ok;
}

Reply BlockManager::sendTransfer(SequenceId id, TransferId &transferId) {
  Sequence *s = find(id);
  if (!s)
    return Reply::UnknownSequence;
  if (s->phase != Phase::Running)
    return Reply::SwappedOut;
  if (contentIsComing(id.slot))
    return Reply::InFlight;
  Transfer *transfer = nullptr;
  if (Reply reply = newTransfer(id, transferId, transfer); reply != Reply::Ok)
    return reply;
  transfer->send = true;
  pinPages(*transfer, 0, s->committed);
  return Reply::Ok;
}

/// The sequence's pages with keys of [begin, end) become the transfer's too.
void BlockManager::pinPages(Transfer &transfer, uint32_t begin, uint32_t end) {
  forEachPage(transfer.sequence.slot, [&](uint32_t g, uint32_t page, Frame f) {
    uint32_t size = config.groups[g].pageSize;
    if ((page + 1) * size <= begin || page * size >= end)
      return;
    pages->addRef(f);
    bool mark = pages->state(f) == PageState::Used;
    if (mark)
      pages->setState(f, PageState::Pinned);
    transfer.items.push_back({f, mark});
  });
}

Reply BlockManager::startTransfer(TransferId id) {
  Transfer *transfer = find(id);
  if (!transfer)
    return Reply::UnknownSequence;
  if (transfer->phase != Transfer::Phase::Reserved)
    return Reply::WrongRow;
  transfer->phase = Transfer::Phase::Started;
  if (!transfer->send)
    pinPages(*transfer, sequences[transfer->sequence.slot].committed,
             sequences[transfer->sequence.slot].bound);
  return Reply::Ok;
}

Reply BlockManager::completeTransfer(TransferId id, std::span<const Token> tokens) {
  Transfer *transfer = find(id);
  if (!transfer)
    return Reply::UnknownSequence;
  if (transfer->phase != Transfer::Phase::Started)
    return Reply::WrongRow;
  if (tokens.size() > transfer->tokens)
    return Reply::InvalidArgument;
  Sequence *s = find(transfer->sequence);
  uint32_t reserved = transfer->tokens;
  bool send = transfer->send;
  SequenceId sequence = transfer->sequence;
  closeTransfer(*transfer);
  if (send || !s)
    return Reply::Ok;
  s->bound -= reserved - static_cast<uint32_t>(tokens.size());
  s->transfer = kNoSlot;
  commitTokens(sequence.slot, tokens, 0);
  return Reply::Ok;
}

Reply BlockManager::abortTransfer(TransferId id) {
  Transfer *transfer = find(id);
  if (!transfer)
    return Reply::UnknownSequence;
  if (transfer->phase == Transfer::Phase::Aborted)
    return Reply::WrongRow;
  if (transfer->phase == Transfer::Phase::Reserved || mutant(Mutant::TransferUnpinned))
    return endTransfer(id);
  transfer->phase = Transfer::Phase::Aborted;
  return Reply::Ok;
}

Reply BlockManager::endTransfer(TransferId id) {
  Transfer *transfer = find(id);
  if (!transfer)
    return Reply::UnknownSequence;
  if (Sequence *s = find(transfer->sequence); s && !transfer->send) {
    s->bound -= transfer->tokens;
    s->transfer = kNoSlot;
  }
  closeTransfer(*transfer);
  return Reply::Ok;
}

void BlockManager::closeTransfer(Transfer &transfer) {
  for (const Transfer::Item &item : transfer.items) {
    if (item.marked)
      pages->setState(item.frame, PageState::Used);
    pages->dropRef(item.frame, 0);
  }
  transfer.items.clear();
  transfer.phase = Transfer::Phase::None;
  ++transfer.generation;
}

/// The sequence that the transfer fills ends. A peer that has started may go on: its
/// pages stay pinned.
void BlockManager::abandonTransfer(uint32_t slot) {
  Transfer &transfer = transfers[slot];
  if (transfer.phase == Transfer::Phase::Reserved || mutant(Mutant::TransferUnpinned))
    closeTransfer(transfer);
  else
    transfer.phase = Transfer::Phase::Aborted;
}

} // namespace llmopt::runtime::kv
