// A page of a quantised cache is its values and their scales: whoever moves it moves both.
#include "Story.h"

using namespace kvtest;

namespace {

/// Bytes of a quantised pool: in each page 4 slots of 4 bytes, then a scale of 2 bytes a slot. What
/// is moved is as long as the block manager says that a page is.
struct QuantisedBytes : PageMover {
  static constexpr uint32_t kSlots = 4, kData = 16, kPage = kData + 8;

  explicit QuantisedBytes(uint32_t pages, uint32_t hostPages)
      : device(pages * kPage), host(hostPages * kPage) {}

  EventId copyOut(std::span<const PageMove> moves, StepId) override {
    for (const PageMove &move : moves)
      copy(device, move.device, host, move.host);
    return 1;
  }
  EventId copyIn(std::span<const PageMove> moves, StepId) override {
    for (const PageMove &move : moves)
      copy(host, move.host, device, move.device);
    return 1;
  }
  bool done(EventId) override { return true; }
  void apply(const StepTables &tables) {
    for (const PageCopy &each : tables.copies)
      copy(device, each.from, device, each.to);
  }
  /// Position i of a text: value and scale follow from the token.
  void write(PageId page, uint32_t slot, Token token) {
    for (uint32_t byte = 0; byte < 4; ++byte)
      at(page, slot * 4 + byte) = uint8_t(token + byte);
    for (uint32_t byte = 0; byte < 2; ++byte)
      at(page, kData + slot * 2 + byte) = uint8_t(200 - token - byte);
  }
  void expect(PageId page, uint32_t slot, Token token) {
    for (uint32_t byte = 0; byte < 4; ++byte)
      EXPECT_EQ(at(page, slot * 4 + byte), uint8_t(token + byte)) << "data of token " << token;
    for (uint32_t byte = 0; byte < 2; ++byte)
      EXPECT_EQ(at(page, kData + slot * 2 + byte), uint8_t(200 - token - byte))
          << "scale of token " << token;
  }

  const uint8_t *page(PageId id) const { return device.data() + size_t(id) * kPage; }
  /// What a peer sends.
  void receive(PageId id, const uint8_t *from) {
    std::copy_n(from, kv->options().groups[0].pageBytes(), device.begin() + long(id) * kPage);
  }

  BlockManager *kv = nullptr;

  /// Positions of a sequence whose text begins with `first`.
  void write(SequenceId id, uint32_t begin, uint32_t end, Token first) {
    for (uint32_t i = begin; i < end; ++i)
      write(kv->pageAt(id, 0, i / kSlots), i % kSlots, first + i);
  }
  void expect(SequenceId id, uint32_t end, Token first) {
    for (uint32_t i = 0; i < end; ++i)
      expect(kv->pageAt(id, 0, i / kSlots), i % kSlots, first + i);
  }

private:
  uint8_t &at(PageId page, uint32_t byte) { return device.at(size_t(page) * kPage + byte); }
  void copy(const std::vector<uint8_t> &from, PageId source, std::vector<uint8_t> &to,
            PageId target) {
    size_t bytes = kv->options().groups[0].pageBytes();
    for (size_t i = 0; i < bytes; ++i)
      to.at(size_t(target) * bytes + i) = from.at(size_t(source) * bytes + i);
  }

  std::vector<uint8_t> device, host;
};

ManagerOptions quantised(uint64_t pages, uint64_t hostPages) {
  GroupSpec group = fullGroup(QuantisedBytes::kSlots, QuantisedBytes::kData);
  group.scaleBytes = QuantisedBytes::kPage - QuantisedBytes::kData;
  ManagerOptions options = optionsFor({group}, pages);
  options.hostBytes = hostPages * QuantisedBytes::kPage;
  return options;
}

} // namespace

// Copy on write, a hit in the middle of a page, and host memory there and back.
TEST(KvQuantised, APageIsCopiedForkedAndSwappedWithItsScales) {
  QuantisedBytes bytes(10, 4);
  Story story(quantised(10, 4), &bytes);
  bytes.kv = story.kv.get();
  auto write = [&](SequenceId id, uint32_t begin, uint32_t end, Token first) {
    bytes.write(id, begin, end, first);
  };
  auto expect = [&](SequenceId id, uint32_t end, Token first) { bytes.expect(id, end, first); };
  SequenceId parent = story.run(text(0, 10));
  write(parent, 0, 10, 0);
  SequenceId child;
  ASSERT_EQ(story.kv->fork(parent, child), Reply::Ok);
  story.open();
  ASSERT_EQ(story.kv->reserve(child, 1), Reply::Ok);
  const StepTables &forked = story.kv->closeStep();
  ASSERT_EQ(forked.copies.size(), 1u);
  bytes.apply(forked);
  StepId step = forked.step;
  write(child, 10, 11, 0);
  ASSERT_EQ(story.kv->commit(child, step, text(10, 1)), Reply::Ok);
  story.kv->completeStep(step);
  write(parent, 8, 10, 90); // of its own now: nobody else sees it
  expect(child, 11, 0);

  // Out, its pages to others, and back.
  ASSERT_EQ(story.kv->swapOut(child), Reply::Ok);
  story.kv->finish(parent);
  story.kv->poll();
  SequenceId other = story.run(text(100, 36));
  write(other, 0, 36, 100);
  story.kv->finish(other);
  ASSERT_EQ(story.kv->swapIn(child), Reply::Ok);
  story.kv->poll();
  expect(child, 11, 0);
  story.kv->finish(child);

  // A page of 100 ... is used up to its middle.
  std::vector<Token> begins = text(100, 8);
  std::vector<Token> differs = text(100, 6);
  differs.insert(differs.end(), {7, 7});
  SequenceId whole = story.run(begins);
  write(whole, 0, 8, 100);
  story.kv->finish(whole);
  Prompt prompt = story.prompt(differs);
  story.open();
  Admission admission = story.kv->admit(prompt, 8);
  ASSERT_EQ(admission.hit.tokens, 6u);
  const StepTables &hit = story.kv->closeStep();
  ASSERT_EQ(hit.copies.size(), 1u);
  bytes.apply(hit);
  expect(admission.sequence, 6, 100);
  story.kv->finish(admission.sequence);
  story.kv->completeStep(hit.step);
}

// Cached pages that went to host memory, and come back for the next one who asks.
TEST(KvQuantised, APageIsDemotedAndLoadedWithItsScales) {
  ManagerOptions options = quantised(4, 8);
  options.demoteBelow = 4;
  QuantisedBytes bytes(4, 8);
  Story story(options, &bytes);
  bytes.kv = story.kv.get();
  SequenceId first = story.run(text(0, 12));
  bytes.write(first, 0, 12, 0);
  story.kv->finish(first);
  EXPECT_EQ(story.kv->demote(8), 3u);
  story.kv->poll();
  SequenceId other = story.run(text(100, 16)); // over all pages of the device
  bytes.write(other, 0, 16, 100);
  story.kv->finish(other);
  std::vector<Token> tokens = text(0, 13);
  Prompt prompt = story.prompt(tokens);
  story.open();
  Admission admission = story.kv->admit(prompt, 13);
  EXPECT_EQ(admission.hit.hostPages, 3u);
  bytes.expect(admission.sequence, 12, 0);
  StepId step = story.close();
  story.kv->commit(admission.sequence, step, text(12, 1));
  story.kv->completeStep(step);
  story.kv->finish(admission.sequence);
}

// What a peer reads and writes are the bytes from one page to the next.
TEST(KvQuantised, APageIsTransferredWithItsScales) {
  QuantisedBytes here(10, 0), there(10, 0);
  Story sender(quantised(10, 0)), receiver(quantised(10, 0));
  here.kv = sender.kv.get();
  there.kv = receiver.kv.get();
  std::vector<Token> tokens = text(0, 15);
  SequenceId sent = sender.run(tokens);
  here.write(sent, 0, 15, 0);
  TransferId out, in;
  ASSERT_EQ(sender.kv->sendTransfer(sent, out), Reply::Ok);
  ASSERT_EQ(sender.kv->startTransfer(out), Reply::Ok);
  std::vector<PageId> pages = sender.pagesOf(sent);
  EXPECT_EQ(sender.kv->finish(sent), Reply::Ok);
  EXPECT_EQ(sender.count(PageState::Pinned), 4u) << "the last page is not full, and stays too";

  Prompt prompt = receiver.prompt(tokens);
  Admission admission = receiver.kv->admitTransfer(prompt, 14, in);
  ASSERT_EQ(admission.reply, Reply::Ok);
  ASSERT_EQ(receiver.kv->startTransfer(in), Reply::Ok);
  for (uint32_t i = 0; i < 4; ++i)
    there.receive(receiver.kv->pageAt(admission.sequence, 0, i), here.page(pages[i]));
  EXPECT_EQ(receiver.kv->completeTransfer(in, text(0, 14)), Reply::Ok);
  there.expect(admission.sequence, 14, 0);
  EXPECT_EQ(sender.kv->completeTransfer(out, {}), Reply::Ok);
  EXPECT_EQ(sender.count(PageState::Pinned), 0u);
  receiver.kv->finish(admission.sequence);
}

// The budget is one of whole pages, and so are the places of their bytes; beside a group without.
TEST(KvQuantised, ScalesCountInTheBudget) {
  ManagerOptions options = quantised(10, 0);
  EXPECT_EQ(options.budgetBytes, 10u * QuantisedBytes::kPage);
  EXPECT_EQ(Story(options).kv->pool().count(PageState::Free), 10u);
  options.groups.push_back(windowGroup(QuantisedBytes::kSlots, 8, 0, QuantisedBytes::kData));
  options.budgetBytes = 4096;
  StatusOr<PoolLayout> layout = layOut(options.groups, options.budgetBytes);
  ASSERT_TRUE(layout.ok()) << layout.status().toString();
  EXPECT_FALSE(layout->equalPages);
  std::vector<int> owner(options.budgetBytes, -1); // the slab of each byte
  for (uint32_t g = 0; g < 2; ++g)
    for (Frame frame = 0; frame < layout->frames(); ++frame) {
      if (frame % layout->framesPerSlab >= layout->pagesPerSlab[g])
        continue;
      PageId id = layout->pageOf(g, frame);
      int slab = int(frame / layout->framesPerSlab);
      uint64_t begin = uint64_t(id) * options.groups[g].pageBytes();
      ASSERT_LE(begin + options.groups[g].pageBytes(), options.budgetBytes);
      for (uint64_t byte = begin; byte < begin + options.groups[g].pageBytes(); ++byte) {
        EXPECT_TRUE(owner[byte] == -1 || owner[byte] == slab) << "page " << id << " of " << g;
        owner[byte] = slab;
      }
    }
}
