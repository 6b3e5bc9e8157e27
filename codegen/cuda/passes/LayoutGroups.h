// Groups of tiles that must have one layout, and how layouts spread among them.
#pragma once

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>

namespace llmopt::cuda {

class LayoutGroups {
public:
  LayoutGroups(mlir::func::FuncOp function, int64_t warps);

  /// Decides a layout for every group.
  void solve();
  tile::Layout layoutOf(mlir::Value value);
  /// Layout of the space that a map runs over.
  tile::Layout spaceOf(tile::MapOp map);
  int64_t getWarps() const { return warps; }

private:
  struct Node {
    int parent;
    int64_t rows, columns;
    unsigned bits;
    std::optional<tile::Layout> layout;
  };
  /// `vector` is `whole` with its rows, columns or both dropped.
  struct Slice {
    int vector, whole;
    bool keepRows, keepColumns;
  };

  int node(mlir::Value value);
  int newNode(int64_t rows, int64_t columns, unsigned bits);
  int find(int index);
  void unite(int a, int b);
  void seed(int index, tile::Layout layout);
  /// Ties a tile that is broadcast to (or reduced from) the space `whole`.
  void tie(mlir::Value value, int whole);

  void collect(mlir::Operation *op);
  void collectMap(tile::MapOp map);
  void collectCopy(mlir::Value rows, tile::SharedAttr shared);
  void spread();

  int64_t warps;
  std::vector<Node> nodes;
  std::vector<Slice> slices;
  llvm::DenseMap<mlir::Value, int> ofValue;
  llvm::DenseMap<mlir::Operation *, int> ofMap;
};

/// The slice of `whole` that a tile of the given extents has in a space of `spaceRows` x
/// `spaceColumns`.
tile::Layout sliceFor(const tile::Layout &whole, int64_t rows, int64_t columns, int64_t spaceRows,
                      int64_t spaceColumns);

/// Writes the layouts into the types, with conversions where an operand has another one.
void applyLayouts(mlir::func::FuncOp function, LayoutGroups &groups);

} // namespace llmopt::cuda
