#include "Driver.h"

#include <algorithm>

namespace kvtest {

std::set<Model::Page> Model::pagesOf(const BlockManager &manager, SequenceId id) {
  std::set<Page> pages;
  for (uint32_t g = 0; g < manager.options().groups.size(); ++g)
    for (uint32_t i = 0; i < manager.tableSize(id, g); ++i)
      if (PageId page = manager.pageAt(id, g, i); page != kNoPage)
        pages.insert({g, page});
  return pages;
}

void Model::holdUntil(const std::set<Page> &pages, StepId step) {
  for (const Page &page : pages)
    held[page] = std::max(held[page], step);
}

Model::Model(const ManagerOptions &options) : tables(options.groups.size()) {
  for (size_t g = 0; g < tables.size(); ++g)
    tables[g].assign(options.maxSequences,
                     std::vector<PageId>(options.groups[g].pagesFor(options.maxTokens), kNoPage));
}

void Model::completeStep(StepId step) {
  std::erase_if(held, [step](const auto &entry) { return entry.second <= step; });
}

/// No byte belongs to two owned pages.
std::string Model::compareBytes(const BlockManager &manager) const {
  std::map<uint64_t, std::pair<uint64_t, Page>> ranges; // by begin
  for (const auto &[page, who] : owners) {
    uint64_t bytes = manager.options().groups[page.first].pageBytes();
    uint64_t begin = static_cast<uint64_t>(page.second) * bytes;
    ranges[begin] = {begin + bytes, page};
  }
  uint64_t end = 0;
  for (const auto &[begin, range] : ranges) {
    if (begin < end)
      return fmt::format("group {} page {} overlaps another owned page", range.second.first,
                         range.second.second);
    end = range.first;
  }
  return end > manager.options().budgetBytes ? "an owned page lies outside the budget" : "";
}

/// Of all pages, those of nobody too.
std::string Model::compareCounts(const Pool &pool, const Owners &owners, const Others &others) {
  std::map<Page, size_t> wanted;
  for (const auto &[page, who] : owners)
    wanted[page] += who.size();
  for (const std::map<Page, uint32_t> &some : {others.pinned, others.moving})
    for (const auto &[page, count] : some)
      wanted[page] += count;
  size_t found = 0;
  for (Frame f = 0; f < pool.layout().frames(); ++f) {
    if (pool.refs(f) == 0)
      continue;
    ++found;
    Page page = {pool.group(f), pool.pageOf(f)};
    auto of = wanted.find(page);
    if (size_t count = of == wanted.end() ? 0 : of->second; pool.refs(f) != count)
      return fmt::format("group {} page {} has {} references and {} owners", page.first,
                         page.second, pool.refs(f), count);
    PageState state = pool.state(f);
    if (state != PageState::Used && state != PageState::Swapping && state != PageState::Pinned)
      return fmt::format("group {} page {} has owners and is {}", page.first, page.second,
                         toString(state));
  }
  return found == wanted.size() ? "" : "an owned page has no reference";
}

std::string Model::compareTold(const StepTables &told, const BlockManager &manager,
                               const std::vector<std::shared_ptr<Client>> &clients,
                               const Others &others) {
  for (const TableDelta &delta : told.deltas) {
    std::vector<PageId> &table = tables[delta.group][delta.tableSlot];
    if (delta.clear)
      std::fill(table.begin(), table.end(), kNoPage);
    std::copy_n(told.pages.begin() + delta.first, delta.count, table.begin() + delta.index);
  }
  newest = told.step;
  Owners now;
  for (const std::shared_ptr<Client> &client : clients)
    for (uint32_t g = 0; g < tables.size() && !client->out; ++g)
      for (PageId page : tables[g][client->id.slot])
        if (page != kNoPage)
          now[{g, page}].insert(client.get());
  std::string wrong = compareCounts(manager.pool(), now, others);
  return wrong.empty() ? "" : "as the device was told, " + wrong;
}

std::string Model::compare(const BlockManager &manager,
                           const std::vector<std::shared_ptr<Client>> &clients,
                           const Others &others) {
  const Pool &pool = manager.pool();
  Owners now;
  for (const std::shared_ptr<Client> &client : clients)
    for (const Page &page : pagesOf(manager, client->id))
      now[page].insert(client.get());
  for (const auto &[page, who] : now) {
    Frame f = pool.layout().frameOf(page.first, page.second);
    bool isNew = !owners.contains(page), isHeld = held.contains(page);
    if (isNew && isHeld && pool.node(f) == kNoNode)
      return fmt::format("group {} page {} was given away while step {} may touch it", page.first,
                         page.second, held[page]);
  }
  for (const auto &[page, step] : held) {
    PageState state = pool.state(pool.layout().frameOf(page.first, page.second));
    if (state == PageState::Free || state == PageState::Cached)
      return fmt::format("group {} page {} is {} while step {} may touch it", page.first,
                         page.second, toString(state), step);
  }
  owners = std::move(now);
  if (std::string wrong = compareCounts(pool, owners, others); !wrong.empty())
    return wrong;
  // Where no step may touch anything, nothing waits for one.
  bool quiet = !manager.currentStep() && held.empty() && manager.completedStep() >= cancelled &&
               manager.completedStep() == newest;
  if (quiet && pool.count(PageState::Pending))
    return fmt::format("{} pages wait for a step and none is unfinished",
                       pool.count(PageState::Pending));
  return compareBytes(manager);
}

} // namespace kvtest
