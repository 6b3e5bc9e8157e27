// The driver's calls that move pages: swap, transfer, and rarer ones.
#include "Driver.h"

namespace kvtest {

void Driver::swap() {
  std::shared_ptr<Client> client = pick();
  for (const std::shared_ptr<Client> &other : clients)
    if (manager->swappedOut(other->id) && !random.oneIn(3))
      client = other;
  if (!client)
    return;
  endSteady(*client);
  if (!manager->swappedOut(client->id)) {
    Reply reply = manager->swapOut(client->id);
    say("swap out slot {}: {}", client->id.slot, toString(reply));
    if (reply != Reply::Ok)
      return;
    client->out = true;
    for (const RowWork &row : rows)
      if (row.client == client && row.prefill)
        client->scheduled -= row.slots;
    std::erase_if(rows, [&](const RowWork &row) { return row.client == client; });
  } else {
    Reply reply = manager->swapIn(client->id);
    client->out = reply != Reply::Ok;
    say("swap in slot {}: {}", client->id.slot, toString(reply));
  }
}

/// Pages of the client that hold keys of [begin, end).
std::set<Model::Page> Driver::pagesWith(const Client &client, uint32_t begin, uint32_t end) const {
  std::set<Model::Page> pages;
  for (uint32_t g = 0; g < options.groups.size(); ++g)
    for (uint32_t key = begin; key < end; ++key)
      if (PageId page = manager->pageAt(client.id, g, key / options.groups[g].pageSize);
          page != kNoPage)
        pages.insert({g, page});
  return pages;
}

void Driver::transfer() {
  if (!transfers.empty() && !random.oneIn(3))
    return endTransfer(random.below(static_cast<uint32_t>(transfers.size())));
  std::shared_ptr<Client> client = pick();
  if (!client)
    return;
  endSteady(*client);
  Incoming incoming;
  incoming.client = client;
  incoming.send = random.oneIn(2);
  if (incoming.send) {
    if (manager->sendTransfer(client->id, incoming.id) != Reply::Ok)
      return;
    incoming.pages = pagesWith(*client, 0, manager->committedTokens(client->id));
    incoming.started = true;
    expect(manager->startTransfer(incoming.id) == Reply::Ok, "start of a transfer");
  } else {
    if (client->scheduled >= client->prompt)
      return;
    incoming.tokens = std::min(random.between(1, 9), client->prompt - client->scheduled);
    if (manager->reserveTransfer(client->id, incoming.tokens, incoming.id) != Reply::Ok)
      return;
    // The peer knows the pages from the tables of the next step.
  }
  say("transfer of slot {}, {} tokens", client->id.slot, incoming.tokens);
  transfers.push_back(incoming);
}

void Driver::endTransfer(size_t index) {
  Incoming &incoming = transfers[index];
  bool alive = manager->alive(incoming.client->id);
  if (!incoming.started && !incoming.send) {
    if (!alive || random.oneIn(4)) {
      Reply reply = manager->abortTransfer(incoming.id);
      expect(reply == (alive ? Reply::Ok : Reply::UnknownSequence), "abort before the start");
      transfers.erase(transfers.begin() + static_cast<std::ptrdiff_t>(index));
      return;
    }
    expect(manager->startTransfer(incoming.id) == Reply::Ok, "start of a transfer");
    incoming.pages = pagesWith(*incoming.client, manager->committedTokens(incoming.client->id),
                               manager->boundTokens(incoming.client->id));
    incoming.started = true;
    return;
  }
  if (alive && !incoming.aborted && random.oneIn(3)) {
    expect(manager->abortTransfer(incoming.id) == Reply::Ok, "abort");
    incoming.aborted = true;
    return;
  }
  Reply reply;
  std::vector<Token> tokens;
  Client &client = *incoming.client;
  if (!incoming.send && alive && !incoming.aborted) {
    // The peer wrote into the pages that it was told.
    for (uint32_t i = 0; i < incoming.tokens; ++i)
      for (uint32_t g = 0; g < options.groups.size(); ++g) {
        uint32_t at = client.computed + i, size = options.groups[g].pageSize;
        device.writePage(g, manager->pageAt(client.id, g, at / size), at % size, client.tags[at]);
      }
    tokens.assign(client.tokens.begin() + client.computed,
                  client.tokens.begin() + client.computed + incoming.tokens);
    client.computed += incoming.tokens;
    client.scheduled += incoming.tokens;
    if (client.computed == client.tokens.size())
      client.push(0);
    reply = manager->completeTransfer(incoming.id, tokens);
  } else {
    for (const Model::Page &page : incoming.pages) // the last writes of a peer
      if (!incoming.send && !alive)
        device.writePage(page.first, page.second, 0, 4711);
    reply = manager->endTransfer(incoming.id);
  }
  say("end of a transfer of slot {}", client.id.slot);
  expect(reply == Reply::Ok, "end of a transfer");
  expect(manager->endTransfer(incoming.id) == Reply::UnknownSequence, "a late note");
  transfers.erase(transfers.begin() + static_cast<std::ptrdiff_t>(index));
}

void Driver::rare() {
  switch (random.below(16)) {
  case 0:
    if (random.oneIn(6)) {
      say("reset");
      ++weights;
      waiting.clear();
      manager->resetCache();
    }
    return;
  case 5:
    if (manager->currentStep() && random.oneIn(3)) {
      for (const RowWork &row : rows)
        if (row.prefill)
          row.client->scheduled -= row.slots;
      rows.clear();
      model.cancelStep(manager->currentStep());
      expect(manager->cancelStep() == Reply::Ok, "cancel");
    }
    return;
  case 6: {
    Demand aside;
    if (random.oneIn(2))
      aside.take[0] = random.below(4);
    manager->setAside(aside);
    return;
  }
  case 7: {
    CacheEvent event;
    while (manager->popEvent(event))
      ;
    return;
  }
  default:
    return;
  }
}

bool Driver::finishAll() {
  while (!clients.empty() && error.empty())
    end(clients.size() - 1);
  close();
  while (!unfinished.empty() && error.empty())
    complete();
  // What a step that was cancelled had touched waits for the one that runs in its place.
  expect(manager->openStep() == Reply::Ok, "a last step");
  close();
  while (!unfinished.empty() && error.empty())
    complete();
  while (!transfers.empty() && error.empty())
    endTransfer(transfers.size() - 1);
  while (device.runCopy())
    ;
  manager->poll();
  manager->setAside({});
  verify();
  const Pool &pool = manager->pool();
  if (error.empty())
    for (Frame f = 0; f < pool.layout().frames(); ++f)
      if (pool.state(f) != PageState::Free && pool.state(f) != PageState::Cached)
        fail(fmt::format("frame {} is {} after the end", f, toString(pool.state(f))));
  return error.empty();
}

} // namespace kvtest
