// Prompts whose KV another machine has computed. The request gets its pages when it is
// admitted, in the queue's order like any other; then the peer writes and the request has no
// row. Whatever becomes of the request meanwhile, pages that the peer may write are pinned in
// the block manager until the connector says that it has ended.
#include "runtime/scheduler/Mutants.h"
#include "runtime/scheduler/Scheduler.h"

#include <algorithm>

using namespace llmopt::runtime;

/// True when the peer has been told to write. False where it has nothing to write, or cannot:
/// then the request is admitted to compute its prompt.
bool Scheduler::tryReceive(uint32_t slot) {
  Request &request = requests[slot];
  uint32_t end = std::min(request.remoteTokens, request.known() - 1);
  request.remoteTokens = 0;
  if (!config.connector || end <= request.matched)
    return false;
  kv::TransferId transfer;
  kv::Admission admission = blocks.admitTransfer(*request.prompt, end, transfer);
  if (admission.reply != kv::Reply::Ok) {
    request.remoteTokens = end; // room may be there later
    return false;
  }
  IncomingKv incoming{handleOf(slot),
                      transfer,
                      admission.sequence,
                      admission.hit.tokens,
                      admission.newTokens,
                      request.peerTag,
                      pagesOf(admission.sequence, admission.hit.tokens, end)};
  if (!config.connector->start(incoming)) {
    blocks.finish(admission.sequence);
    return false;
  }
  blocks.startTransfer(transfer);
  request.sequence = admission.sequence;
  request.computed = admission.hit.tokens;
  request.prefillEnd = request.known() - (request.leads ? 1 : 0);
  request.receiving = true;
  request.transfer = transfer;
  counts.tokensReused += request.computed;
  ++counts.transfers;
  receivers.push_back(slot);
  return true;
}

/// Those with tokens of [begin, end), as far as the sequence has them.
std::span<const TransferPage> Scheduler::pagesOf(kv::SequenceId sequence, uint32_t begin,
                                                 uint32_t end) {
  transferPages.clear();
  for (uint32_t g = 0; g < blocks.options().groups.size(); ++g) {
    uint32_t size = blocks.options().groups[g].pageSize;
    uint32_t last = std::min(blocks.tableSize(sequence, g), (end + size - 1) / size);
    for (uint32_t page = begin / size; page < last; ++page)
      if (kv::PageId id = blocks.pageAt(sequence, g, page); id != kv::kNoPage)
        transferPages.push_back({g, page, id});
  }
  return transferPages;
}

/// A request ends whose pages a peer may want.
void Scheduler::offerPages(uint32_t slot, FinishReason reason) {
  Request &request = requests[slot];
  kv::TransferId transfer;
  if ((reason != FinishReason::Length && reason != FinishReason::Stop) ||
      blocks.sendTransfer(request.sequence, transfer) != kv::Reply::Ok)
    return;
  uint32_t tokens = blocks.committedTokens(request.sequence);
  OutgoingKv outgoing{handleOf(slot), transfer, tokens, request.peerTag,
                      pagesOf(request.sequence, 0, tokens)};
  if (config.connector->offer(outgoing) && !mutant(SchedulerMutant::SentUnpinned))
    blocks.startTransfer(transfer);
  else
    blocks.endTransfer(transfer);
}

/// The request ends or loses its pages.
void Scheduler::stopReceiving(Request &request) {
  if (!request.receiving)
    return;
  request.receiving = false;
  std::erase(receivers, uint32_t(&request - requests.data()));
  config.connector->cancel(request.transfer);
}

bool Scheduler::transferDone(kv::TransferId transfer, uint32_t tokens) {
  auto receives = [&](uint32_t slot) {
    return requests[slot].transfer == transfer || (mutant(SchedulerMutant::LateNoteCounts) &&
                                                   requests[slot].transfer.slot == transfer.slot);
  };
  auto found = std::find_if(receivers.begin(), receivers.end(), receives);
  if (found == receivers.end()) { // of a request that is gone, or a late note
    bool ended = blocks.endTransfer(transfer) == kv::Reply::Ok;
    updateGauges();
    return ended;
  }
  Request &request = requests[*found];
  receivers.erase(found);
  request.receiving = false;
  uint32_t came = std::min(tokens, blocks.boundTokens(request.sequence) - request.computed);
  auto prompt = request.tokens().subspan(request.computed, came);
  kv::Reply reply = came ? blocks.completeTransfer(transfer, prompt) : blocks.endTransfer(transfer);
  request.computed += came;
  counts.tokensReused += came;
  counts.tokensTransferred += came;
  updateGauges();
  return reply == kv::Reply::Ok;
}
