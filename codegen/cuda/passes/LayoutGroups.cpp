// See LayoutGroups.h.
#include "codegen/cuda/passes/LayoutGroups.h"
#include "codegen/cuda/passes/Products.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;
using tile::Layout;
using tile::LayoutDim;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

bool inRegisters(Value value) { return tile::isTile(value.getType()) && !tile::sharedOf(value); }

} // namespace

Layout cuda::sliceFor(const Layout &whole, int64_t rows, int64_t columns, int64_t spaceRows,
                      int64_t spaceColumns) {
  Layout layout = whole;
  if (columns == 1 && spaceColumns > 1)
    layout = layout.slice(LayoutDim::Row);
  if (rows == 1 && spaceRows > 1)
    layout = layout.slice(LayoutDim::Column);
  return layout;
}

LayoutGroups::LayoutGroups(func::FuncOp function, int64_t warps) : warps(warps) {
  function.walk([&](Operation *op) { collect(op); });
}

int LayoutGroups::newNode(int64_t rows, int64_t columns, unsigned bits) {
  nodes.push_back({int(nodes.size()), rows, columns, bits, std::nullopt});
  return nodes.size() - 1;
}

int LayoutGroups::node(Value value) {
  auto [entry, isNew] = ofValue.try_emplace(value, 0);
  if (isNew) {
    RankedTensorType type = typeOf(value);
    entry->second = newNode(type.getDimSize(0), type.getDimSize(1),
                            type.getElementType().getIntOrFloatBitWidth());
    if (auto fragment = tile::fragmentOf(value))
      seed(entry->second, fragment.getLayout());
  }
  return find(entry->second);
}

int LayoutGroups::find(int index) {
  while (nodes[index].parent != index)
    index = nodes[index].parent = nodes[nodes[index].parent].parent;
  return index;
}

void LayoutGroups::unite(int a, int b) {
  a = find(a), b = find(b);
  if (a == b)
    return;
  nodes[b].parent = a;
  nodes[a].bits = std::min(nodes[a].bits, nodes[b].bits);
  if (!nodes[a].layout)
    nodes[a].layout = nodes[b].layout;
}

void LayoutGroups::seed(int index, Layout layout) {
  index = find(index);
  if (!nodes[index].layout)
    nodes[index].layout = layout.normalised();
}

void LayoutGroups::tie(Value value, int whole) {
  RankedTensorType type = typeOf(value);
  whole = find(whole);
  bool keepRows = type.getDimSize(0) == nodes[whole].rows;
  bool keepColumns = type.getDimSize(1) == nodes[whole].columns;
  if (keepRows && keepColumns)
    unite(whole, node(value));
  else
    slices.push_back({node(value), whole, keepRows, keepColumns});
}

void LayoutGroups::collectMap(tile::MapOp map) {
  auto [rows, columns] = map.getSpace();
  int space = newNode(rows, columns, 32);
  ofMap[map] = space;
  for (Value input : map.getInputs())
    tie(input, space);
  for (Value result : map.getResults())
    tie(result, space);
}

/// Addresses of rows that are copied to or from shared memory. Up to 8 lanes take 128 bytes of
/// a row at once: a whole line of memory, and few rows, so few addresses, for a thread.
void LayoutGroups::collectCopy(Value rows, tile::SharedAttr shared) {
  seed(node(rows),
       tile::copyRowsLayout(typeOf(rows).getDimSize(0), shared.getLayout().span, warps));
}

void LayoutGroups::collect(Operation *op) {
  auto same = [&](Value a, Value b) {
    if (inRegisters(a))
      unite(node(a), node(b));
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](tile::MapOp map) { collectMap(map); })
      .Case([&](tile::ReduceOp reduce) {
        int whole = node(reduce.getTile());
        tie(reduce.getResult(), whole);
      })
      .Case([&](tile::LoadOp load) {
        if (auto shared = tile::sharedOf(load.getTile())) {
          collectCopy(load.getRows(), shared);
          return;
        }
        tie(load.getRows(), node(load.getTile()));
      })
      .Case([&](tile::StoreOp store) {
        if (auto shared = tile::sharedOf(store.getTile()))
          collectCopy(store.getRows(), shared);
        else
          tie(store.getRows(), node(store.getTile()));
      })
      .Case([&](tile::MmaOp mma) {
        same(mma.getC(), mma.getResult());
        seed(node(mma.getResult()), accumulatorOf(mma, warps));
      })
      .Case([&](tile::FoldOp fold) {
        RankedTensorType type = typeOf(fold.getResult());
        if (fold.getTile().getType() == type)
          same(fold.getTile(), fold.getResult());
        // Read and stored four at a time.
        else if (type.getDimSize(1) % 4 == 0)
          seed(node(fold.getResult()),
               tile::blockedLayout(type.getDimSize(0), type.getDimSize(1), warps, 4));
      })
      .Case([&](scf::ForOp loop) {
        auto *yield = loop.getBody()->getTerminator();
        for (auto [i, argument] : llvm::enumerate(loop.getRegionIterArgs())) {
          if (!inRegisters(argument))
            continue;
          same(argument, loop.getInitArgs()[i]);
          same(argument, yield->getOperand(i));
          same(argument, loop.getResult(i));
        }
      })
      .Case([&](scf::WhileOp loop) {
        auto condition = loop.getConditionOp();
        auto yield = loop.getYieldOp();
        for (auto [i, argument] : llvm::enumerate(loop.getBeforeArguments())) {
          if (!inRegisters(argument))
            continue;
          same(argument, loop.getInits()[i]);
          same(argument, yield.getOperand(i));
        }
        for (auto [i, argument] : llvm::enumerate(loop.getAfterArguments())) {
          if (!inRegisters(argument))
            continue;
          same(argument, condition.getArgs()[i]);
          same(argument, loop.getResult(i));
        }
      })
      .Case([&](scf::IfOp branch) {
        for (auto [i, result] : llvm::enumerate(branch.getResults())) {
          if (!inRegisters(result))
            continue;
          same(result, branch.thenYield().getOperand(i));
          same(result, branch.elseYield().getOperand(i));
        }
      });
}

void LayoutGroups::spread() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Slice &slice : slices) {
      Node &vector = nodes[find(slice.vector)], &whole = nodes[find(slice.whole)];
      if (vector.layout || !whole.layout)
        continue;
      Layout layout = *whole.layout;
      if (!slice.keepColumns)
        layout = layout.slice(LayoutDim::Row);
      if (!slice.keepRows)
        layout = layout.slice(LayoutDim::Column);
      vector.layout = layout;
      changed = true;
    }
  }
}

void LayoutGroups::solve() {
  for (;;) {
    spread();
    // The largest tile without a layout decides for those that hang on it.
    int next = -1;
    for (int i = 0; i < int(nodes.size()); ++i)
      if (find(i) == i && !nodes[i].layout &&
          (next < 0 || nodes[i].rows * nodes[i].columns > nodes[next].rows * nodes[next].columns))
        next = i;
    if (next < 0)
      return;
    Node &node = nodes[next];
    // Pairs of 16-bit elements fill registers.
    int64_t run = node.bits <= 16 && node.columns > 1 ? 2 : 1;
    node.layout = tile::blockedLayout(node.rows, node.columns, warps, run);
  }
}

Layout LayoutGroups::layoutOf(Value value) { return *nodes[node(value)].layout; }

Layout LayoutGroups::spaceOf(tile::MapOp map) { return *nodes[find(ofMap.at(map))].layout; }
