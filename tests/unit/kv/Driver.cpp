#include "Driver.h"

#include <algorithm>

namespace kvtest {

uint32_t Random::below(uint32_t limit) {
  if (limit <= 1)
    return 0;
  if (state == 0) { // bytes of a fuzzer
    uint32_t value = 0;
    for (uint32_t left = limit - 1; left > 0 && !bytes.empty(); left >>= 8) {
      value = value << 8 | bytes[0];
      bytes = bytes.subspan(1);
    }
    return value % limit;
  }
  state += 0x9e3779b97f4a7c15;
  uint64_t x = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return static_cast<uint32_t>((x >> 32) * limit >> 32);
}

ManagerOptions randomOptions(Random &random) {
  GroupSpec full{.pageSize = 4, .dataBytes = 8};
  GroupSpec window{.kind = GroupKind::Window, .pageSize = 4, .dataBytes = 8};
  window.window = random.between(1, 11);
  window.sink = random.oneIn(2) ? random.between(1, 6) : 0;
  GroupSpec chunked{.kind = GroupKind::Chunked, .pageSize = 4, .dataBytes = 8};
  chunked.chunk = random.between(3, 13);
  GroupSpec latent{.kind = GroupKind::Latent, .pageSize = 2, .dataBytes = 4, .scaleBytes = 2};
  ManagerOptions options;
  switch (random.below(7)) {
  case 0:
    options.groups = {full};
    break;
  case 1:
    options.groups = {full, window};
    break;
  case 2:
    window.dataBytes = 12;
    options.groups = {full, window};
    break;
  case 3:
    options.groups = {window};
    break;
  case 4:
    options.groups = {full, latent};
    break;
  case 5:
    options.groups = {chunked, full, window};
    break;
  default:
    options.groups = {latent};
    break;
  }
  options.budgetBytes = random.between(12, 48) * 8 * options.groups.size();
  options.hostBytes = random.oneIn(3) ? 0 : random.between(8, 40) * 12 * options.groups.size();
  options.maxSequences = random.between(2, 8);
  options.maxTokens = random.between(20, 60);
  options.maxStepsInFlight = 1u << random.below(3);
  options.maxDraft = random.below(5);
  options.cache.enabled = !random.oneIn(12);
  options.cache.seed = random.below(100);
  options.cache.hashBits = random.oneIn(3) ? random.between(1, 8) : 64;
  options.cache.partialHits = !random.oneIn(4);
  options.cache.events = random.oneIn(2) ? 64 : 0;
  options.demoteBelow = random.oneIn(2) ? 1000 : 0;
  options.maxTransfers = 3;
  options.reportFrees = !random.oneIn(4);
  return options;
}

Driver::Driver(const ManagerOptions &options, Random random)
    : options(options), random(random), device(options), model(options) {
  StatusOr<std::unique_ptr<BlockManager>> made = BlockManager::create(options, &device);
  if (!made)
    error = made.status().toString();
  else
    manager = std::move(*made);
}

void Driver::fail(const std::string &what) {
  if (error.empty())
    error = fmt::format("call {}: {}", calls, what);
}

bool Driver::step() {
  ++calls;
  if (!error.empty() || !manager)
    return false;
  callSomething();
  verify();
  return error.empty();
}

Model::Others Driver::others() const {
  Model::Others others;
  for (const Incoming &incoming : transfers)
    for (const Model::Page &page : incoming.pages)
      ++others.pinned[page];
  device.forEachMove([&](const PageMove &move) { ++others.moving[{move.group, move.device}]; });
  return others;
}

void Driver::verify() {
  if (std::string wrong = model.compare(*manager, clients, others()); !wrong.empty())
    fail(wrong);
  if (!device.error.empty())
    fail(device.error);
  if (calls % checkEvery == 0)
    if (Status status = manager->check(); !status.ok())
      fail(status.message());
}

std::shared_ptr<Client> Driver::pick() {
  return clients.empty() ? nullptr : clients[random.below(static_cast<uint32_t>(clients.size()))];
}

void Driver::callSomething() {
  switch (random.below(22)) {
  case 0:
  case 1:
    return newPrompt();
  case 2:
  case 3:
  case 4:
    return admit();
  case 5:
  case 6:
  case 7:
  case 8:
  case 9:
    return reserve();
  case 10:
  case 11:
    return close();
  case 12:
  case 13:
  case 14:
    return complete();
  case 15:
    return endRandom();
  case 16:
    return fork();
  case 17:
    return swap();
  case 18:
    return transfer();
  case 19:
    device.runCopy();
    return manager->poll();
  case 20:
    say("demote");
    demoted += manager->demote(random.between(1, 6));
    return;
  default:
    return rare();
  }
}

bool Driver::ensureOpen() {
  if (manager->currentStep())
    return true;
  Reply reply = manager->openStep();
  expect(reply == (unfinished.size() < options.maxStepsInFlight ? Reply::Ok : Reply::TooManySteps),
         "open step");
  return reply == Reply::Ok;
}

// ---- Admission

void Driver::newPrompt() {
  if (waiting.size() >= 3)
    return;
  auto client = std::make_shared<Client>();
  std::vector<Token> tokens;
  if (!library.empty() && !random.oneIn(4)) {
    tokens = library[random.below(static_cast<uint32_t>(library.size()))];
    tokens.resize(random.between(0, static_cast<uint32_t>(tokens.size())));
  }
  for (uint32_t i = random.below(9) + tokens.empty(); i > 0; --i)
    tokens.push_back(random.below(3));
  tokens.resize(std::min<size_t>(tokens.size(), options.maxTokens));
  client->key.model = "m";
  client->weights = weights;
  if (random.oneIn(3))
    client->key.adapter = random.oneIn(2) ? "a" : "b";
  if (random.oneIn(8))
    client->key.salt = "s";
  if (random.oneIn(6)) {
    uint32_t begin = random.below(static_cast<uint32_t>(tokens.size()));
    uint32_t end =
        std::min<uint32_t>(begin + random.between(1, 9), static_cast<uint32_t>(tokens.size()));
    client->media.push_back({begin, end, random.oneIn(2) ? "cat" : "dog"});
  }
  client->tokens = tokens;
  client->prompt = static_cast<uint32_t>(tokens.size());
  client->setTags();
  auto prompt = std::make_unique<Prompt>(std::span<const Token>(client->tokens), client->key,
                                         manager->blockSize(), client->media);
  prompt->bypassHits = random.oneIn(20);
  prompt->neverInsert = random.oneIn(20);
  if (library.size() < 12)
    library.push_back(tokens);
  else
    library[random.below(12)] = tokens;
  waiting.push_back({client, std::move(prompt)});
}

void Driver::admit() {
  if (waiting.empty() || !ensureOpen())
    return;
  size_t index = random.below(static_cast<uint32_t>(waiting.size()));
  Waiting &next = waiting[index];
  const Pool &pool = manager->pool();
  std::vector<uint64_t> before;
  auto fingerprint = [&] {
    std::vector<uint64_t> print;
    for (Frame f = 0; f < pool.layout().frames(); ++f)
      print.push_back(uint64_t{pool.refs(f)} << 8 | static_cast<uint64_t>(pool.state(f)));
    for (uint32_t g = 0; g < options.groups.size(); ++g)
      for (bool hit : {false, true})
        pool.forEachCached(g, hit, [&](Frame f) {
          print.push_back(f);
          return true;
        });
    return print;
  };
  before = fingerprint();
  Incoming incoming;
  bool fromPeer = random.oneIn(8);
  uint32_t end = fromPeer ? random.between(1, next.client->prompt) : 0;
  if (fromPeer && manager->match(*next.prompt).tokens >= end)
    fromPeer = false;
  Admission admission = fromPeer ? manager->admitTransfer(*next.prompt, end, incoming.id)
                                 : manager->admit(*next.prompt, random.between(1, 17));
  say("admit {} tokens: {} slot {} hit {} ({} partial, {} from host), {} new", next.client->prompt,
      toString(admission.reply), admission.sequence.slot, admission.hit.tokens,
      admission.hit.partialTokens, admission.hit.hostPages, admission.newTokens);
  if (admission.reply != Reply::Ok) {
    ++lacks;
    expect(fingerprint() == before, "a refused admission changed something");
    if (admission.reply == Reply::PermanentLack || random.oneIn(6))
      waiting.erase(waiting.begin() + index);
    return;
  }
  Client &client = *next.client;
  expect(admission.hit.tokens < client.prompt, "a hit leaves nothing to run");
  expect(!next.prompt->bypassHits || admission.hit.tokens == 0, "a hit in spite of bypassHits");
  client.id = admission.sequence;
  client.computed = admission.hit.tokens;
  if (fromPeer) {
    client.scheduled = client.computed;
    incoming.client = next.client;
    incoming.tokens = admission.newTokens;
    expect(client.computed + incoming.tokens == end, "a transfer ends where it was asked to");
    transfers.push_back(incoming);
    clients.push_back(next.client);
    waiting.erase(waiting.begin() + index);
    return;
  }
  client.scheduled = client.computed + admission.newTokens;
  partialHits += admission.hit.partialTokens > 0;
  hostHits += admission.hit.hostPages > 0;
  RowWork row;
  row.client = next.client;
  row.id = client.id;
  row.slots = admission.newTokens;
  row.prefill = true;
  rows.push_back(row);
  clients.push_back(next.client);
  waiting.erase(waiting.begin() + index);
}

// ---- Steps

void Driver::reserve() {
  std::shared_ptr<Client> client = pick();
  if (!client || !ensureOpen())
    return;
  if (steady.contains(client.get()) && !random.oneIn(4)) {
    expect(manager->reserve(client->id, 1) == Reply::UnknownSequence, "a row besides steady ones");
    return;
  }
  endSteady(*client);
  for (const RowWork &row : rows)
    if (row.client == client) {
      expect(manager->reserve(client->id, 1) == Reply::WrongRow || manager->swappedOut(client->id),
             "a second row in a step");
      return;
    }
  RowWork row;
  row.client = client;
  row.id = client->id;
  row.prefill = client->scheduled < client->prompt;
  if (row.prefill)
    row.slots = std::min(random.between(1, 9), client->prompt - client->scheduled);
  else
    row.slots = 1 + random.below(options.maxDraft + 1);
  row.tree = !row.prefill && random.oneIn(3);
  row.accept = random.below(row.slots);
  Reply reply = manager->reserve(client->id, row.slots);
  say("reserve slot {}: {} tokens{}{}, {}", row.id.slot, row.slots,
      row.prefill ? " of the prompt" : "", row.tree ? " as a tree" : "", toString(reply));
  if (reply == Reply::TooLong || reply == Reply::PermanentLack)
    return end(static_cast<size_t>(std::ranges::find(clients, client) - clients.begin()));
  if (reply != Reply::Ok) {
    lacks += reply == Reply::TemporaryLack;
    return;
  }
  if (row.prefill)
    client->scheduled += row.slots;
  rows.push_back(row);
}

void Driver::close() {
  if (!manager->currentStep())
    return;
  addSteadyRows();
  const StepTables &tables = manager->closeStep();
  say("close step {}: {} deltas, {} copies, {} waits", tables.step, tables.deltas.size(),
      tables.copies.size(), tables.waits.size());
  unfinished.push_back(tables.step);
  if (std::string wrong = model.compareTold(tables, *manager, clients, others()); !wrong.empty())
    fail(wrong);
  device.submit(tables, std::move(rows));
  rows.clear();
  if (random.oneIn(2))
    device.runSteps(tables.step - random.below(2));
  beginSteady();
}

/// Who is steady has a row in each step; whose rows may not begin as far any more is not, or has
/// what the manager wants to be told of then.
void Driver::addSteadyRows() {
  for (const std::shared_ptr<Client> &client : clients) {
    auto found = steady.find(client.get());
    if (found == steady.end())
      continue;
    Steady &state = found->second;
    uint32_t slot = client->id.slot, base = manager->boundTokens(client->id);
    if (unfinished.empty() && random.oneIn(8)) {
      manager->keepSteady(slot, state.tokens);
      state.tokens.clear();
    }
    bool goesOn = base < state.end;
    if (!goesOn && unfinished.empty() && !random.oneIn(4)) {
      goesOn = manager->reserveSteady(slot) == Reply::Ok;
      bool ends = base >= manager->steadyPlainEnd(slot);
      state.end =
          ends ? base + 1 : std::min(manager->steadyCapacity(slot), manager->steadyPlainEnd(slot));
      say("slot {} {} steady", slot, goesOn ? "stays" : "lacks a page to be");
    }
    if (!goesOn || random.oneIn(16)) {
      endSteady(*client);
      continue;
    }
    RowWork &row = rows.emplace_back();
    row.client = client;
    row.id = client->id;
    row.slots = 1;
    ++steadyRows;
  }
}

void Driver::beginSteady() {
  for (const std::shared_ptr<Client> &client : clients) {
    if (client->scheduled < client->prompt || !random.oneIn(2))
      continue;
    uint32_t end = manager->beginSteady(client->id);
    if (!end)
      continue;
    say("slot {} is steady up to {}", client->id.slot, end);
    expect(!steady.contains(client.get()), "it was steady already");
    expect(manager->beginSteady(client->id) == 0, "it becomes steady twice");
    steady[client.get()] = {end, {}};
  }
}

void Driver::endSteady(const Client &client) {
  auto found = steady.find(&client);
  if (found == steady.end())
    return;
  say("slot {} is steady no more", client.id.slot);
  manager->endSteady(client.id, found->second.tokens);
  steady.erase(found);
}

void Driver::complete() {
  if (unfinished.empty())
    return;
  StepId step = unfinished.front();
  device.runSteps(step);
  StepWork &work = device.stepOf(step);
  bool failed = random.oneIn(60);
  say("complete step {}{}", step, failed ? ", which failed" : "");
  std::vector<SequenceId> ids;
  for (RowWork &row : work.rows) {
    ids.push_back(row.id);
    if (failed)
      endSteady(*row.client);
    else
      commitRow(row, step);
  }
  model.completeStep(step);
  Reply reply = manager->completeStep(step);
  expect(reply == Reply::Ok, "complete step");
  unfinished.pop_front();
  device.retire(step);
  for (SequenceId id : ids) // rows of a failed step computed nothing that counts
    for (size_t i = clients.size(); failed && i-- > 0;)
      if (clients[i]->id == id)
        end(i);
}

void Driver::commitRow(RowWork &row, StepId step) {
  auto found = steady.find(row.client.get());
  if (found != steady.end() && !random.oneIn(16)) {
    expect(row.committed.size() == 1 && !row.unsettled, "a steady row yields a token");
    std::vector<Token> &tokens = found->second.tokens;
    tokens.push_back(row.committed[0]);
    if (manager->committedTokens(row.id) < manager->steadyPlainEnd(row.id.slot))
      return;
    say("slot {} ends a block, or lets a page go", row.id.slot);
    manager->commitSteady(row.id.slot, tokens);
    tokens.clear();
    ++steadyEnds;
    return;
  }
  endSteady(*row.client);
  Reply reply = manager->commit(row.id, step, row.committed, row.unsettled);
  bool lives =
      std::ranges::find(clients, row.id, [](const auto &c) { return c->id; }) != clients.end();
  lateRows += !lives;
  expect(reply == (lives ? Reply::Ok : Reply::UnknownSequence), "commit");
}

void Driver::end(size_t index) {
  std::shared_ptr<Client> client = clients[index];
  endSteady(*client);
  std::set<Model::Page> pages = Model::pagesOf(*manager, client->id);
  StepId last = 0;
  for (StepId step : unfinished)
    for (const RowWork &row : device.stepOf(step).rows)
      if (row.id == client->id)
        last = step;
  Reply reply = manager->finish(client->id);
  say("finish slot {}, last step {}", client->id.slot, last);
  expect(reply == Reply::Ok, "finish");
  expect(manager->finish(client->id) == Reply::UnknownSequence, "finish twice");
  std::erase_if(rows, [&](const RowWork &row) { return row.client == client; });
  clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(index));
  if (last)
    model.holdUntil(pages, last);
  library[random.below(static_cast<uint32_t>(library.size()))] = client->tokens;
}

void Driver::endRandom() {
  if (!clients.empty())
    end(random.below(static_cast<uint32_t>(clients.size())));
}

void Driver::fork() {
  std::shared_ptr<Client> parent = pick();
  if (!parent)
    return;
  endSteady(*parent);
  auto child = std::make_shared<Client>(*parent);
  uint32_t rowsBefore = manager->unfinishedRows(parent->id);
  bool swapped = manager->swappedOut(parent->id);
  Reply reply = manager->fork(parent->id, child->id);
  if (reply != Reply::Ok) {
    expect(reply == Reply::NoTableSlot || reply == Reply::InFlight || swapped, "fork");
    return;
  }
  expect(rowsBefore == 0, "fork of a sequence with rows");
  say("fork slot {} to slot {}", parent->id.slot, child->id.slot);
  // A child of its own: what it generates differs from its parent's.
  if (child->computed < child->tokens.size() && child->computed >= child->prompt) {
    child->tokens.resize(child->computed);
    child->tags.resize(child->computed);
    child->push(random.below(3));
  }
  clients.push_back(child);
}

} // namespace kvtest
