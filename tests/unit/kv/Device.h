// A device for tests: its memory holds, for each slot of each page, a tag of the
// content that should be there, and each read checks the tags of all keys that the
// query may see. Steps and copies run as late as the test likes, so that a page given
// away too early is found with somebody else's content.
#pragma once

#include "runtime/kv/BlockManager.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace kvtest {

using namespace llmopt::runtime;
using namespace llmopt::runtime::kv;

/// Tag of the KV at a position: of the key and of all tokens up to it.
using Tag = uint64_t;
Tag nextTag(Tag before, uint64_t token);

/// A request as the device sees it: the truth that the host learns later. Rows of a
/// request that has ended still run.
struct Client {
  SequenceId id;
  CacheKey key;
  uint64_t weights = 0; ///< that compute its content
  std::vector<MediaSpan> media;
  std::vector<Token> tokens; ///< prompt, then what was generated
  std::vector<Tag> tags;     ///< of tokens
  uint32_t prompt = 0;
  uint32_t computed = 0;  ///< on the device
  uint32_t scheduled = 0; ///< prompt tokens that the host has scheduled
  bool out = false;       ///< its pages are in host memory, or on their way there
  /// Content that the next row has to bring to its place first: position, tag.
  std::vector<std::pair<uint32_t, Tag>> unsettled;

  void setTags();
  void push(Token token);
};

struct RowWork {
  std::shared_ptr<Client> client;
  SequenceId id;
  uint32_t slots = 0; ///< reserved
  bool prefill = false;
  bool tree = false;
  uint32_t accept = 0; ///< drafts that will be accepted, at most slots - 1
  // Result.
  std::vector<Token> committed;
  uint32_t unsettled = 0;
};

struct StepWork {
  StepId step = 0;
  std::vector<TableDelta> deltas;
  std::vector<PageId> pages;
  std::vector<PageCopy> copies;
  std::vector<EventId> waits;
  std::deque<RowWork> rows;
  bool ran = false;
};

class Device : public PageMover {
public:
  explicit Device(const ManagerOptions &options);

  EventId copyOut(std::span<const PageMove> moves, StepId after) override;
  EventId copyIn(std::span<const PageMove> moves, StepId after) override;
  bool done(EventId event) override;
  /// Of copies that nobody has found to be done.
  template <typename Visit> void forEachMove(Visit visit) const {
    for (const auto &[event, moves] : pending)
      for (const PageMove &move : moves)
        visit(move);
  }

  /// Takes a closed step with its rows.
  void submit(const StepTables &tables, std::deque<RowWork> rows);
  /// Runs steps up to this one.
  void runSteps(StepId upTo);
  /// Runs the oldest copy that has not run.
  bool runCopy();
  StepWork &stepOf(StepId step);
  void retire(StepId step);

  /// A peer writes (or reads) content for a transfer.
  void write(uint32_t slot, uint32_t position, Tag tag);
  void check(uint32_t slot, const std::vector<Tag> &tags, uint32_t query);
  PageId entry(uint32_t slot, uint32_t group, uint32_t page) const;
  void writePage(uint32_t group, PageId page, uint32_t slotInPage, Tag tag);
  bool pageHolds(uint32_t group, PageId page, uint32_t slotInPage, Tag tag) const;

  /// The first thing that went wrong, or empty.
  std::string error;
  uint64_t reads = 0;

private:
  struct Move {
    PageMove page;
    bool out;
  };
  struct Event {
    std::vector<Move> moves;
    StepId after;
    bool ran = false;
  };
  EventId newEvent(std::span<const PageMove> moves, StepId after, bool out);
  void runEvent(Event &event);
  void run(StepWork &work);
  void runRow(RowWork &row);
  Tag *cells(std::vector<Tag> &memory, uint32_t group, PageId page);
  void fail(const std::string &what);

  ManagerOptions options;
  std::vector<Tag> memory, host;
  std::vector<std::vector<std::vector<PageId>>> tables; ///< [group][slot][page]
  std::map<EventId, Event> events;
  std::map<EventId, std::vector<PageMove>> pending; ///< not known to be done
  EventId lastEvent = 0;
  std::deque<StepWork> steps;
  StepId ran = 0;
  uint64_t version = 0;
};

/// Whether a query at `query` sees the key, by the definition of the kind.
bool sees(const GroupSpec &group, uint32_t query, uint32_t key);

} // namespace kvtest
