// Rows for registers: liveness over the control flow of one lane (lanes have
// cells of their own, so divergence does not matter), the span from first to
// last instruction where a register is live, and linear scan over the spans.
#include "runtime/device/sim/decode/KernelDecoder.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace llmopt::sim {

namespace {

using Bits = std::vector<uint64_t>;

void set(Bits &bits, uint32_t i) { bits[i / 64] |= uint64_t{1} << (i % 64); }
bool test(const Bits &bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

struct FlowBlock {
  uint32_t begin = 0, end = 0; ///< instructions
  std::vector<uint32_t> successors;
  Bits uses, defs, liveIn, liveOut;
};

struct Span {
  uint32_t first = ~uint32_t{0};
  uint32_t last = 0;
  void extend(uint32_t at) {
    first = std::min(first, at);
    last = std::max(last, at);
  }
  bool empty() const { return first > last; }
};

bool endsBlock(const Inst &inst) {
  return inst.flow == Flow::Branch || inst.flow == Flow::Table || inst.flow == Flow::Exit;
}

std::vector<FlowBlock> splitBlocks(const Kernel &kernel) {
  auto size = static_cast<uint32_t>(kernel.code.size());
  std::vector<bool> leader(size + 1, false);
  leader[0] = true;
  for (uint32_t i = 0; i < size; ++i) {
    const Inst &inst = kernel.code[i];
    if (inst.flow == Flow::Branch)
      leader[inst.target] = true;
    if (endsBlock(inst))
      leader[i + 1] = true;
  }
  for (uint32_t target : kernel.targets)
    leader[target] = true;

  std::vector<FlowBlock> blocks;
  std::vector<uint32_t> blockOf(size + 1, 0);
  for (uint32_t i = 0; i < size; ++i) {
    if (leader[i]) {
      blocks.emplace_back();
      blocks.back().begin = i;
    }
    blocks.back().end = i + 1;
    blockOf[i] = static_cast<uint32_t>(blocks.size()) - 1;
  }
  for (FlowBlock &block : blocks) {
    const Inst &last = kernel.code[block.end - 1];
    if (last.flow == Flow::Branch)
      block.successors.push_back(blockOf[last.target]);
    if (last.flow == Flow::Table)
      for (int64_t t = 0; t < last.imm; ++t)
        block.successors.push_back(blockOf[kernel.targets[last.target + t]]);
    if ((!endsBlock(last) || last.guard != kNoGuard) && block.end < size)
      block.successors.push_back(blockOf[block.end]);
  }
  return blocks;
}

/// Refs in the order of instructions, uses of an instruction before its results.
std::vector<RegRef> sortRefs(const std::vector<RegRef> &refs) {
  std::vector<RegRef> sorted = refs;
  std::sort(sorted.begin(), sorted.end(), [](const RegRef &a, const RegRef &b) {
    return std::tie(a.inst, a.output, a.reg) < std::tie(b.inst, b.output, b.reg);
  });
  return sorted;
}

void solveLiveness(std::vector<FlowBlock> &blocks) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = blocks.size(); b-- > 0;) {
      FlowBlock &block = blocks[b];
      for (uint32_t successor : block.successors)
        for (size_t w = 0; w < block.liveOut.size(); ++w)
          block.liveOut[w] |= blocks[successor].liveIn[w];
      for (size_t w = 0; w < block.liveIn.size(); ++w) {
        uint64_t in = block.uses[w] | (block.liveOut[w] & ~block.defs[w]);
        changed |= in != block.liveIn[w];
        block.liveIn[w] = in;
      }
    }
  }
}

std::vector<Span> liveSpans(const Kernel &kernel, size_t registers, const std::vector<RegRef> &refs,
                            std::vector<uint32_t> &liveAtEntry) {
  std::vector<FlowBlock> blocks = splitBlocks(kernel);
  std::vector<Span> spans(registers);
  size_t words = (registers + 63) / 64;
  size_t next = 0;
  for (FlowBlock &block : blocks) {
    for (Bits *bits : {&block.uses, &block.defs, &block.liveIn, &block.liveOut})
      bits->assign(words, 0);
    for (; next < refs.size() && refs[next].inst < block.end; ++next) {
      const RegRef &ref = refs[next];
      spans[ref.reg].extend(ref.inst);
      // A result under a predicate may leave the old value in place.
      if (ref.output && kernel.code[ref.inst].guard == kNoGuard)
        set(block.defs, ref.reg);
      else if (!ref.output && !test(block.defs, ref.reg))
        set(block.uses, ref.reg);
    }
  }
  solveLiveness(blocks);
  for (uint32_t reg = 0; reg < registers; ++reg)
    if (test(blocks.front().liveIn, reg))
      liveAtEntry.push_back(reg);
  for (const FlowBlock &block : blocks) {
    for (uint32_t reg = 0; reg < registers; ++reg) {
      if (test(block.liveIn, reg))
        spans[reg].extend(block.begin);
      if (test(block.liveOut, reg))
        spans[reg].extend(block.end - 1);
    }
  }
  return spans;
}

/// Places for one class of registers.
class Pool {
public:
  uint32_t take(const Span &span) {
    while (!busy.empty() && busy.top().first < span.first) {
      idle.push_back(busy.top().second);
      busy.pop();
    }
    uint32_t place = idle.empty() ? size++ : idle.back();
    if (!idle.empty())
      idle.pop_back();
    busy.emplace(span.last, place);
    return place;
  }
  uint32_t takeForever() { return size++; }
  uint32_t count() const { return size; }

private:
  using Busy = std::pair<uint32_t, uint32_t>; ///< last instruction, place
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  std::vector<uint32_t> idle;
  uint32_t size = 0;
};

void write(Kernel &kernel, const RegRef &ref, uint32_t row) {
  Inst &inst = kernel.code[ref.inst];
  switch (ref.field) {
  case Field::D:
    inst.d = row;
    return;
  case Field::D2:
    inst.d2 = row;
    return;
  case Field::A:
    inst.a = row;
    return;
  case Field::B:
    inst.b = row;
    return;
  case Field::C:
    inst.c = row;
    return;
  case Field::Guard:
    inst.guard = row;
    return;
  case Field::List:
    kernel.lists[inst.list + ref.index] = row;
    return;
  }
}

} // namespace

std::vector<uint32_t> allocateSlots(Kernel &kernel, const std::vector<VirtualReg> &registers,
                                    const std::vector<RegRef> &refs) {
  // The guard must be known to be one before places are given out.
  for (const RegRef &ref : refs)
    if (ref.field == Field::Guard)
      kernel.code[ref.inst].guard = 0;

  std::vector<RegRef> sorted = sortRefs(refs);
  std::vector<uint32_t> liveAtEntry;
  std::vector<Span> spans = liveSpans(kernel, registers.size(), sorted, liveAtEntry);
  std::vector<uint32_t> order;
  for (uint32_t reg = 0; reg < registers.size(); ++reg)
    if (!spans[reg].empty())
      order.push_back(reg);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tie(spans[a].first, a) < std::tie(spans[b].first, b);
  });

  Pool pools[3];
  std::vector<uint32_t> places(registers.size(), 0);
  for (uint32_t reg : order) {
    Pool &pool = pools[static_cast<size_t>(registers[reg].cls)];
    places[reg] = registers[reg].pinned ? pool.takeForever() : pool.take(spans[reg]);
  }
  uint32_t narrowRows = pools[static_cast<size_t>(RegClass::Narrow)].count();
  uint32_t wideBegin = (narrowRows + 1) / 2 * 2 * kLanes * 4;
  auto rowOf = [&](uint32_t reg) {
    switch (registers[reg].cls) {
    case RegClass::Predicate:
      return places[reg];
    case RegClass::Narrow:
      return places[reg] * kLanes * 4;
    case RegClass::Wide:
      return wideBegin + places[reg] * kLanes * 8;
    }
    return 0u;
  };
  for (const RegRef &ref : refs)
    write(kernel, ref, rowOf(ref.reg));
  std::erase_if(kernel.constants, [&](const Constant &c) { return spans[c.row].empty(); });
  for (Constant &constant : kernel.constants)
    constant.row = rowOf(constant.row);
  kernel.predicates = pools[static_cast<size_t>(RegClass::Predicate)].count();
  kernel.registerBytes =
      wideBegin + pools[static_cast<size_t>(RegClass::Wide)].count() * kLanes * 8;
  return liveAtEntry;
}

} // namespace llmopt::sim
