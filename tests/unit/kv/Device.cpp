#include "Device.h"

#include <algorithm>

namespace kvtest {

Tag nextTag(Tag before, uint64_t token) {
  uint64_t x = (before ^ (token + 0x51ed270b)) * 0xff51afd7ed558ccdu;
  return (x ^ x >> 29) * 0xc4ceb9fe1a85ec53u + 1;
}

void Client::setTags() {
  tags.clear();
  std::vector<Token> all;
  all.swap(tokens);
  for (Token token : all)
    push(token);
}

void Client::push(Token token) {
  Tag before = 1;
  for (char c : key.adapter + '/' + key.salt + '/' + key.model)
    before = nextTag(before, static_cast<unsigned char>(c));
  before = nextTag(before, weights);
  uint64_t what = token;
  for (const MediaSpan &span : media)
    if (tokens.size() >= span.begin && tokens.size() < span.end)
      for (char c : span.digest)
        what = nextTag(what, static_cast<unsigned char>(c)) + tokens.size() - span.begin;
  tags.push_back(nextTag(tags.empty() ? before : tags.back(), what));
  tokens.push_back(token);
}

bool sees(const GroupSpec &group, uint32_t query, uint32_t key) {
  if (key > query)
    return false;
  switch (group.kind) {
  case GroupKind::Window:
    return key + group.window > query || key < group.sink;
  case GroupKind::Chunked:
    return key / group.chunk == query / group.chunk;
  default:
    return true;
  }
}

Device::Device(const ManagerOptions &options)
    : options(options), memory(options.budgetBytes), host(options.hostBytes) {
  tables.resize(options.groups.size());
  for (size_t g = 0; g < tables.size(); ++g)
    tables[g].assign(options.maxSequences,
                     std::vector<PageId>(options.groups[g].pagesFor(options.maxTokens), kNoPage));
}

void Device::fail(const std::string &what) {
  if (error.empty())
    error = what;
}

// ---- Memory

/// A page's first cell: a cell a byte, so that pages of all groups share the memory.
Tag *Device::cells(std::vector<Tag> &where, uint32_t group, PageId page) {
  uint64_t bytes = options.groups[group].pageBytes();
  if (page < 0 || (static_cast<uint64_t>(page) + 1) * bytes > where.size()) {
    fail(fmt::format("group {} page {} lies outside the pool", group, page));
    page = 0;
  }
  return where.data() + static_cast<uint64_t>(page) * bytes;
}

void Device::writePage(uint32_t group, PageId page, uint32_t slot, Tag tag) {
  const GroupSpec &spec = options.groups[group];
  uint64_t each = spec.pageBytes() / spec.pageSize;
  std::fill_n(cells(memory, group, page) + slot * each, each, nextTag(tag, group));
}

bool Device::pageHolds(uint32_t group, PageId page, uint32_t slot, Tag tag) const {
  const GroupSpec &spec = options.groups[group];
  uint64_t each = spec.pageBytes() / spec.pageSize;
  const Tag *at =
      const_cast<Device *>(this)->cells(const_cast<Device *>(this)->memory, group, page);
  for (uint64_t i = 0; i < each; ++i)
    if (at[slot * each + i] != nextTag(tag, group))
      return false;
  return true;
}

PageId Device::entry(uint32_t slot, uint32_t group, uint32_t page) const {
  return page < tables[group][slot].size() ? tables[group][slot][page] : kNoPage;
}

void Device::write(uint32_t slot, uint32_t position, Tag tag) {
  for (uint32_t g = 0; g < options.groups.size(); ++g) {
    uint32_t size = options.groups[g].pageSize;
    PageId page = entry(slot, g, position / size);
    if (page == kNoPage)
      fail(fmt::format("slot {} group {} has no page for position {}", slot, g, position));
    else
      writePage(g, page, position % size, tag);
  }
}

void Device::check(uint32_t slot, const std::vector<Tag> &tags, uint32_t query) {
  for (uint32_t g = 0; g < options.groups.size(); ++g)
    for (uint32_t key = 0; key <= query; ++key) {
      if (!sees(options.groups[g], query, key))
        continue;
      ++reads;
      uint32_t size = options.groups[g].pageSize;
      PageId page = entry(slot, g, key / size);
      if (page == kNoPage || !pageHolds(g, page, key % size, tags[key]))
        fail(fmt::format("slot {} group {} query {}: page {} does not hold key {}", slot, g, query,
                         page, key));
    }
}

// ---- Copies

EventId Device::newEvent(std::span<const PageMove> moves, StepId after, bool out) {
  Event event{.moves = {}, .after = after};
  for (const PageMove &move : moves)
    event.moves.push_back({move, out});
  events[++lastEvent] = event;
  pending[lastEvent].assign(moves.begin(), moves.end());
  return lastEvent;
}

EventId Device::copyOut(std::span<const PageMove> moves, StepId after) {
  return newEvent(moves, after, true);
}

EventId Device::copyIn(std::span<const PageMove> moves, StepId after) {
  return newEvent(moves, after, false);
}

bool Device::done(EventId event) {
  if (events.contains(event) && !events[event].ran)
    return false;
  pending.erase(event);
  return true;
}

void Device::runEvent(Event &event) {
  if (event.ran)
    return;
  event.ran = true;
  runSteps(event.after);
  for (const Move &move : event.moves) {
    Tag *device = cells(memory, move.page.group, move.page.device);
    Tag *other = cells(host, move.page.group, move.page.host);
    uint64_t bytes = options.groups[move.page.group].pageBytes();
    if (move.out)
      std::copy_n(device, bytes, other);
    else
      std::copy_n(other, bytes, device);
  }
}

bool Device::runCopy() {
  for (auto &[id, event] : events)
    if (!event.ran) {
      runEvent(event);
      return true;
    }
  events.clear();
  return false;
}

// ---- Steps

void Device::submit(const StepTables &tables, std::deque<RowWork> rows) {
  StepWork work{.step = tables.step,
                .deltas = {tables.deltas.begin(), tables.deltas.end()},
                .pages = {tables.pages.begin(), tables.pages.end()},
                .copies = {tables.copies.begin(), tables.copies.end()},
                .waits = {tables.waits.begin(), tables.waits.end()},
                .rows = std::move(rows)};
  if (tables.baseVersion != version || tables.version != version + 1)
    fail(fmt::format("tables of version {} meet a change from {}", version, tables.baseVersion));
  version = tables.version;
  for (const FreedPage &page : tables.freed) // nobody may count on it any more
    std::fill_n(cells(memory, page.group, page.page), options.groups[page.group].pageBytes(), 0);
  steps.push_back(std::move(work));
}

void Device::runSteps(StepId upTo) {
  for (StepWork &work : steps)
    if (!work.ran && work.step <= upTo)
      run(work);
}

void Device::run(StepWork &work) {
  work.ran = true;
  ran = work.step;
  for (EventId event : work.waits)
    if (events.contains(event))
      runEvent(events[event]);
  for (const TableDelta &delta : work.deltas) {
    std::vector<PageId> &table = tables[delta.group][delta.tableSlot];
    if (delta.clear)
      std::fill(table.begin(), table.end(), kNoPage);
    std::copy_n(work.pages.begin() + delta.first, delta.count, table.begin() + delta.index);
  }
  // All at once: the order of copies must not matter.
  std::vector<std::vector<Tag>> contents;
  for (const PageCopy &copy : work.copies) {
    const Tag *from = cells(memory, copy.group, copy.from);
    contents.emplace_back(from, from + options.groups[copy.group].pageBytes());
  }
  for (size_t i = 0; i < contents.size(); ++i)
    std::copy(contents[i].begin(), contents[i].end(),
              cells(memory, work.copies[i].group, work.copies[i].to));
  // Writes of the whole step come before its reads in each layer.
  for (RowWork &row : work.rows)
    runRow(row);
}

void Device::runRow(RowWork &row) {
  Client *client = row.client.get();
  if (!client)
    return;
  uint32_t slot = row.id.slot, base = client->computed;
  for (auto [position, tag] : client->unsettled)
    write(slot, position, tag);
  client->unsettled.clear();
  if (row.prefill) {
    for (uint32_t i = 0; i < row.slots; ++i)
      write(slot, base + i, client->tags[base + i]);
    check(slot, client->tags, base);
    check(slot, client->tags, base + row.slots - 1);
    client->computed += row.slots;
    row.committed.assign(client->tokens.begin() + base, client->tokens.begin() + client->computed);
    if (client->computed == client->tokens.size())
      client->push(static_cast<Token>(client->tags.back() % 3));
    return;
  }
  // The input token, then drafts; the accepted ones become the sequence's.
  uint32_t drafts = row.slots - 1, accept = std::min(row.accept, drafts);
  write(slot, base, client->tags[base]);
  for (uint32_t i = 0; i < accept; ++i)
    client->push(static_cast<Token>(client->tags.back() % 3));
  for (uint32_t i = 0; i < drafts; ++i)
    write(slot, base + 1 + i,
          i < accept && !row.tree ? client->tags[base + 1 + i] : nextTag(base, i + 77));
  for (uint32_t i = 0; i < accept && row.tree; ++i)
    client->unsettled.push_back({base + 1 + i, client->tags[base + 1 + i]});
  row.unsettled = row.tree ? accept : 0;
  check(slot, client->tags, base);
  client->computed += 1 + accept;
  row.committed.assign(client->tokens.begin() + base, client->tokens.begin() + client->computed);
  client->push(static_cast<Token>(client->tags.back() % 3));
}

StepWork &Device::stepOf(StepId step) { return *std::ranges::find(steps, step, &StepWork::step); }

void Device::retire(StepId step) {
  std::erase_if(steps, [step](const StepWork &work) { return work.step == step; });
}

} // namespace kvtest
