#include "tests/unit/serving/RandomLoad.h"

using namespace llmopt::test;

StoryOptions RandomLoad::optionsOf(const Load &load) {
  StoryOptions options;
  options.pages = 24;
  options.cache = load.cache;
  options.hostPages = load.swap || load.secondLevel ? 16 : 0;
  options.demoteBelow = load.secondLevel ? 10 : 0;
  options.cacheEvents = load.secondLevel ? 8 : 0;
  options.acceptance = 0.6;
  options.scheduler.policy = load.policy;
  options.scheduler.stepsInFlight = load.steps;
  options.scheduler.tokenBudget = 48;
  options.scheduler.maxRunning = 6;
  options.scheduler.maxLength = 80;
  options.scheduler.ageSteps = 40;
  options.scheduler.maxAdapters = 2;
  options.scheduler.growthTokens = load.seed % 2 ? 0 : 4;
  options.scheduler.connector = load.events ? this : nullptr;
  for (uint32_t i = 0; i < load.drafts; ++i)
    options.scheduler.deviceDrafts.push_back(load.tree ? int16_t(i / 2) - 1 : int16_t(i) - 1);
  if (load.windows) {
    kv::GroupSpec full = llama8b(options.pageSize).groups[0].group, window = full;
    window.kind = kv::GroupKind::Window;
    window.window = 10;
    window.sink = 2;
    window.dataBytes = full.dataBytes / 2;
    options.groups = {full, window};
    options.pages = 40;
  }
  return options;
}

/// Steps from coming to ending, for requests older ones of which number `older` - 1.
uint64_t RandomLoad::waitingBound(uint64_t older) const {
  const SchedulerOptions &s = story.options.scheduler;
  uint64_t chunk = s.tokenBudget - (s.maxRunning - 1) * (1 + s.maxDraft());
  auto parts = [&](uint64_t tokens) { return (tokens + chunk - 1) / chunk; };
  uint64_t others = parts(uint64_t(s.maxRunning) * s.maxLength) + s.maxLength;
  uint64_t own = parts(s.maxLength) + s.maxLength;
  return s.ageSteps + older * (s.stepsInFlight + 2) * (others + own);
}

void RandomLoad::add() {
  char name = kNames[next++];
  Ask ask;
  ask.prompt = 1 + upTo(50);
  ask.answer = 1 + upTo(29);
  ask.priority = upTo(3);
  ask.adapter = upTo(4);
  ask.stream = upTo(2) ? UINT32_MAX : upTo(3);
  ask.seed = random();
  ask.neverInsert = load.samples && upTo(4) == 0;
  std::string group(1, name);
  while (load.samples && next < most && group.size() < 4 && upTo(2))
    group += kNames[next++];
  if (load.events) {
    if (upTo(4) == 0) {
      stopAt[name] = upTo(20);
      ask.stops = {Story::answerToken(name, stopAt[name])};
    }
    if (upTo(12) == 0)
      ask.deadline = story.now + 1'000'000 + int64_t(upTo(400)) * 1'000'000;
    if (upTo(5) == 0)
      ask.filter = this;
    if (upTo(4) == 0)
      ask.remote = upTo(50);
    ask.forPeer = upTo(3) == 0;
  }
  story.addSamples(group, ask);
  for (char each : group) {
    bornAt[each] = story.steps;
    boundOf[each] = waitingBound(story.scheduler->running() + story.scheduler->waiting());
  }
}

void RandomLoad::abortSomebody() {
  char name = kNames[upTo(uint32_t(next))];
  if (story.scheduler->abort(story.handles[name], story.now))
    cut.insert(name);
}

/// Masks get ready, transfers end, notes come late.
void RandomLoad::peerWorks() {
  for (auto &[slot, mask] : masks)
    if (mask == Mask::Awaited && upTo(3) == 0) {
      mask = Mask::Ready;
      story.scheduler->filterReady(story.handles[story.names[slot]]);
    }
  if (!incoming.empty() && upTo(3) == 0) {
    size_t i = upTo(uint32_t(incoming.size()));
    IncomingKv done = incoming[i];
    incoming.erase(incoming.begin() + long(i));
    uint32_t came = upTo(3) ? done.count : upTo(done.count + 1);
    EXPECT_TRUE(story.scheduler->transferDone(done.transfer, came));
    over.push_back(done.transfer);
  }
  if (!outgoing.empty() && upTo(6) == 0)
    peerHasRead();
  if (!over.empty() && upTo(4) == 0)
    EXPECT_FALSE(story.scheduler->transferDone(over[upTo(uint32_t(over.size()))], 3))
        << "a late note counts";
}

/// Until now nobody else got the pages.
void RandomLoad::peerHasRead() {
  for (const auto &[page, changes] : outgoing.back().pages) {
    EXPECT_NE(page.page, kv::kNoPage);
    EXPECT_EQ(story.mover.owners.changesOf(page.group, page.page), changes)
        << "page " << page.page << " was written while a peer read it";
  }
  kv::TransferId transfer = outgoing.back().transfer;
  outgoing.pop_back();
  EXPECT_TRUE(story.scheduler->transferDone(transfer, 0));
  over.push_back(transfer);
}

void RandomLoad::copiesEnd() {
  if (uint64_t &finished = story.mover.finished; finished > story.mover.started())
    finished = story.mover.started(); // from now on one by one
  else if (finished < story.mover.started() && upTo(3) == 0)
    ++finished;
  if (upTo(60) == 0)
    story.scheduler->resetCache();
  kv::CacheEvent event;
  if (upTo(4) == 0)
    while (story.scheduler->nextCacheEvent(event))
      ;
}

/// With the request's adapter.
void RandomLoad::peerWrites(const IncomingKv &given) {
  const Ask &ask = story.asked[story.names[given.request.slot]];
  for (uint32_t g = 0; g < story.blocks->options().groups.size(); ++g) {
    uint32_t size = story.blocks->options().groups[g].pageSize;
    for (uint32_t page = given.first / size; page * size < given.first + given.count; ++page)
      story.mover.owners.write(g, story.blocks->pageAt(given.sequence, g, page),
                               story.ownerOf(ask));
  }
}

void RandomLoad::launch() {
  Scheduler &scheduler = *story.scheduler;
  RequestHandle ward = scheduler.ward();
  uint32_t wardLost = scheduler.alive(ward) ? scheduler.request(ward.slot).preemptions : 0;
  // The oldest waiter that is aged keeps others out.
  const Request *aged = nullptr;
  std::set<uint32_t> waiting;
  for (auto &[name, handle] : story.handles) {
    const Request &request = scheduler.request(handle.slot);
    if (!alive(name) || request.state != RequestState::Waiting || request.blocked ||
        request.leader != Request::kNone)
      continue;
    waiting.insert(handle.slot);
    bool isAged = story.steps - request.submitStep >= story.options.scheduler.ageSteps;
    if (isAged && (!aged || request.arrival < aged->arrival))
      aged = &request;
  }
  uint64_t agedArrival = aged ? aged->arrival : 0;
  if (story.launch().empty())
    return;
  auto input = StepInput::parse(story.lastBytes);
  std::set<uint32_t> adapters;
  for (const step::Row &row : input->rows()) {
    const Ask &ask = story.asked[story.names[row.request]];
    if (row.adapter)
      adapters.insert(row.adapter);
    if (ask.filter && (row.flags & step::kSamples)) {
      EXPECT_TRUE(masks[row.request] == Mask::Ready)
          << "a token is sampled before its mask is there";
      masks[row.request] = Mask::Used;
    }
    bool receives = std::ranges::any_of(incoming, [&](const IncomingKv &in) {
      return in.request == RequestHandle{row.request, row.generation};
    });
    EXPECT_FALSE(receives) << "a row while a peer writes";
    if (aged && waiting.contains(row.request) &&
        scheduler.request(aged - &scheduler.request(0)).state == RequestState::Waiting)
      EXPECT_LE(scheduler.request(row.request).arrival, agedArrival)
          << "admitted while an aged one waits";
  }
  EXPECT_LE(adapters.size(), story.options.scheduler.maxAdapters);
  if (scheduler.alive(ward))
    EXPECT_EQ(scheduler.request(ward.slot).preemptions, wardLost) << "the ward was preempted";
}

void RandomLoad::land() {
  RequestHandle victim;
  story.adjust = [&](StepResult &result) {
    if (!load.events || upTo(40))
      return;
    RowResult &row = result.rows[upTo(uint32_t(result.rows.size()))];
    row.failed = true;
    row.tokenCount = 0;
    victim = {row.request, row.generation};
  };
  bool was = false;
  auto fail = story.adjust;
  story.adjust = [&](StepResult &result) {
    fail(result);
    was = story.scheduler->alive(victim);
  };
  story.land();
  story.adjust = nullptr;
  if (!was)
    return;
  EXPECT_FALSE(story.scheduler->alive(victim)) << "a failed row leaves its request running";
  cut.insert(story.names[victim.slot]);
}

void RandomLoad::checkEnds() {
  for (auto &[name, handle] : story.handles) {
    const Ask &ask = story.asked[name];
    if (ask.deadline > story.now || cut.contains(name))
      continue;
    // What is overdue ends in the next step that is made.
    EXPECT_FALSE(alive(name)) << name << " is overdue";
    cut.insert(name);
  }
}

void RandomLoad::play(const std::function<bool()> &stop) {
  constexpr uint64_t kMostTurns = 60'000;
  uint64_t turns = 0;
  while (next < most || !story.scheduler->idle()) {
    if (++turns == kMostTurns) {
      ADD_FAILURE() << "the load does not end";
      return;
    }
    while (next < most && (story.scheduler->idle() || upTo(3) == 0))
      add();
    if (load.aborts && upTo(25) == 0)
      abortSomebody();
    if (load.events)
      peerWorks();
    if (load.secondLevel)
      copiesEnd();
    bool full = story.scheduler->stepsInFlight() == load.steps;
    uint64_t before = story.steps;
    if (!full && upTo(2) == 0) {
      launch();
      if (load.events)
        checkEnds();
    }
    if (full || (before == story.steps && story.scheduler->stepsInFlight()))
      land();
    story.now += 1000;
    story.checkAll();
    if (stop())
      return;
  }
  while (!incoming.empty()) {
    EXPECT_TRUE(story.scheduler->transferFailed(incoming.back().transfer));
    incoming.pop_back();
  }
  while (!outgoing.empty())
    peerHasRead();
  story.mover.finished = UINT64_MAX;
  EXPECT_TRUE(story.scheduler->schedule(story.now).empty());
  uint64_t positions = 0, given = 0, gaps = 0;
  for (size_t i = 0; i < next; ++i) {
    char name = kNames[i];
    uint32_t expected = story.asked[name].answer;
    if (auto at = stopAt.find(name); at != stopAt.end())
      expected = std::min(expected, at->second + 1);
    if (cut.contains(name))
      expected = uint32_t(story.answers[name].size());
    story.expectAnswer(name, expected);
    if (!cut.contains(name) && !load.events)
      EXPECT_LE(story.endStep[name] - bornAt[name], boundOf[name]) << name;
    positions += story.asked[name].prompt + story.asked[name].answer - 1;
    size_t tokens = story.answers[name].size();
    given += tokens;
    gaps += tokens ? tokens - 1 : 0;
  }
  story.expectEmpty();
  const ServingMetrics &metrics = story.scheduler->metrics();
  EXPECT_EQ(metrics.generationTokensTotal, given);
  EXPECT_EQ(metrics.interToken.count(), gaps);
  if (!load.aborts && !load.events)
    EXPECT_EQ(metrics.tokensComputed, positions - metrics.tokensReused + metrics.tokensRecomputed +
                                          metrics.tokensRejected + metrics.tokensDiscarded);
}
