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

void Model::completeStep(StepId step) {
  std::erase_if(held, [step](const auto &entry) { return entry.second <= step; });
}

void Model::clear() {
  owners.clear();
  held.clear();
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

std::string Model::compare(const BlockManager &manager,
                           const std::vector<std::shared_ptr<Client>> &clients,
                           const std::map<Page, uint32_t> &pinned, bool jobs) {
  const Pool &pool = manager.pool();
  std::map<Page, std::set<const Client *>> now;
  for (const std::shared_ptr<Client> &client : clients)
    for (const Page &page : pagesOf(manager, client->id))
      now[page].insert(client.get());
  for (const auto &[page, who] : now) {
    Frame f = pool.layout().frameOf(page.first, page.second);
    auto pin = pinned.find(page);
    size_t wanted = who.size() + (pin == pinned.end() ? 0 : pin->second);
    if (pool.refs(f) != wanted && !(jobs && pool.refs(f) > wanted))
      return fmt::format("group {} page {} has {} references and {} owners", page.first,
                         page.second, pool.refs(f), wanted);
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
  return compareBytes(manager);
}

} // namespace kvtest
