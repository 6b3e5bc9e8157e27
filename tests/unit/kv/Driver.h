// Random calls to a block manager, with a device that checks content and a naive model
// that checks ownership. Same seed, same calls.
#pragma once

#include "Device.h"

#include <random>
#include <set>

namespace kvtest {

/// Choices from a seed, or from the bytes of a fuzzer; zeros when those run out.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed * 2 + 1) {}
  explicit Random(std::span<const uint8_t> bytes) : bytes(bytes) {}
  /// 0 to below - 1.
  uint32_t below(uint32_t limit);
  uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
  bool oneIn(uint32_t times) { return below(times) == 0; }
  bool exhausted() const { return state == 0 && bytes.empty(); }

private:
  uint64_t state = 0;
  std::span<const uint8_t> bytes;
};

/// Page -> owners, anew after each call. Knows nothing of lists, counts or hashes. Who has a page:
/// clients, by the tables of the manager and, whenever a step is closed, by what the device was
/// told of them alone; copies that were started and not yet found to be done; transfers. Nobody
/// else: each page has as many references as owners.
class Model {
public:
  using Page = std::pair<uint32_t, PageId>;
  struct Others {
    std::map<Page, uint32_t> pinned; ///< by transfers
    std::map<Page, uint32_t> moving; ///< by copies to and from host memory
  };

  explicit Model(const ManagerOptions &options);
  /// Unfinished steps may touch these pages until `step` is complete.
  void holdUntil(const std::set<Page> &pages, StepId step);
  void completeStep(StepId step);
  /// The open step does not run: what it touched waits for the next one.
  void cancelStep(StepId step) { cancelled = step; }
  /// Compares with the pool; the first disagreement, or empty.
  std::string compare(const BlockManager &manager,
                      const std::vector<std::shared_ptr<Client>> &clients, const Others &others);
  /// The same by the tables that the device was told of, these last.
  std::string compareTold(const StepTables &told, const BlockManager &manager,
                          const std::vector<std::shared_ptr<Client>> &clients,
                          const Others &others);

  static std::set<Page> pagesOf(const BlockManager &manager, SequenceId id);

private:
  using Owners = std::map<Page, std::set<const Client *>>;
  std::string compareBytes(const BlockManager &manager) const;
  static std::string compareCounts(const Pool &pool, const Owners &owners, const Others &others);

  Owners owners;
  std::map<Page, StepId> held;
  StepId cancelled = 0, newest = 0;                     ///< steps: given up last, closed last
  std::vector<std::vector<std::vector<PageId>>> tables; ///< as told: [group][slot][page]
};

class Driver {
public:
  Driver(const ManagerOptions &options, Random random);

  /// One random call. False when something is wrong; `error` says what.
  bool step();
  /// Ends all requests and looks whether everything has come back.
  bool finishAll();

  std::string error;
  std::unique_ptr<BlockManager> manager;
  uint64_t calls = 0, lacks = 0, partialHits = 0, hostHits = 0, lateRows = 0, demoted = 0,
           steadyRows = 0, steadyEnds = 0;
  /// With it on, each call writes a line to stderr: how a failing seed is looked at.
  bool talk = false;
  /// The manager's own check runs after each of so many calls.
  uint32_t checkEvery = 1;

private:
  struct Waiting {
    std::shared_ptr<Client> client;
    std::unique_ptr<Prompt> prompt;
  };
  struct Incoming {
    TransferId id;
    std::shared_ptr<Client> client;
    uint32_t tokens = 0;
    bool started = false, aborted = false, send = false;
    std::set<Model::Page> pages;
  };

  void callSomething();
  bool ensureOpen();
  void newPrompt();
  void admit();
  void reserve();
  void close();
  void complete();
  void commitRow(RowWork &row, StepId step);
  void addSteadyRows();
  void beginSteady();
  void endSteady(const Client &client);
  void end(size_t index);
  void endRandom();
  void fork();
  void swap();
  std::set<Model::Page> pagesWith(const Client &client, uint32_t begin, uint32_t end) const;
  void transfer();
  void endTransfer(size_t index);
  void rare();
  void fail(const std::string &what);
  void verify();
  Model::Others others() const;
  template <typename... Args> void say(fmt::format_string<Args...> format, Args &&...args) {
    if (talk)
      fmt::print(stderr, "{}: {}\n", calls, fmt::format(format, std::forward<Args>(args)...));
  }
  void expect(bool ok, const std::string &what) {
    if (!ok)
      fail(what);
  }
  std::shared_ptr<Client> pick();

  ManagerOptions options;
  Random random;
  Device device;
  Model model;
  std::vector<std::shared_ptr<Client>> clients;
  std::vector<Waiting> waiting;
  std::vector<Incoming> transfers;
  std::vector<std::vector<Token>> library; ///< token lists to make prompts of
  std::deque<RowWork> rows;                ///< of the open step
  struct Steady {
    uint32_t end;              ///< its rows begin before
    std::vector<Token> tokens; ///< that the manager was not told of
  };
  std::map<const Client *, Steady> steady;
  std::deque<StepId> unfinished;
  uint64_t weights = 0; ///< content computed with others is of no use
};

/// A small random set of options: layer groups, pool, steps in flight.
ManagerOptions randomOptions(Random &random);

} // namespace kvtest
