// Prints one kernel, a function after tile-gpu-sync, as CUDA C++.
//
// A tile in registers is an array with one element for each register of its layout (pairs
// of 16-bit elements share one); a tile in shared memory is a `shared_tile`; a scalar is a
// constant, or an expression where it is used once. A value may take over the variable of
// an operand that dies.
#pragma once

#include "codegen/cuda/emit/Expression.h"
#include "codegen/cuda/emit/Writer.h"
#include "dialect/tile/TextAttrs.h"
#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace llmopt::cuda {

/// The name that a value has from where it was made; empty if it has none. Several results of an
/// operation have a fused location, one part each.
llvm::StringRef nameOf(mlir::Value value);

/// An index that is a number of 32 bits, and is printed as that; arithmetic with others of 64 needs
/// a cast (see tile-gpu-narrow-indices).
bool isWidened(mlir::Value value);

class Printer {
public:
  explicit Printer(mlir::func::FuncOp kernel);

  /// Fails with a diagnostic at the operation that has no CUDA form.
  mlir::LogicalResult run();
  /// Parameters and the kernel, without the device functions that it uses.
  const Lines &lines() const { return result; }

private:
  // The kernel (Kernel.cpp).
  std::vector<std::string> parameterNames();
  void head(llvm::ArrayRef<std::string> names);

  // Statements; each returns failure after a diagnostic.
  mlir::LogicalResult block(mlir::Block &block);
  mlir::LogicalResult operation(mlir::Operation *op);

  // Control flow (Control.cpp).
  mlir::LogicalResult print(mlir::scf::ForOp loop);
  mlir::LogicalResult print(mlir::scf::WhileOp loop);
  mlir::LogicalResult print(mlir::scf::IfOp branch);
  bool changesInPlace(mlir::scf::IfOp branch, unsigned result);
  void changeInPlace(mlir::scf::ForOp loop);
  bool skipsTurn(mlir::scf::IfOp branch);
  /// Variables that `targets` get, from `sources`, at `at`.
  void carry(mlir::ValueRange targets, mlir::ValueRange sources, mlir::Operation *at);
  void assign(mlir::ValueRange targets, mlir::ValueRange sources);
  void alias(mlir::ValueRange targets, mlir::ValueRange sources);

  // Scalars (Scalars.cpp).
  mlir::LogicalResult scalar(mlir::Operation *op);
  mlir::FailureOr<Expression> scalarExpression(mlir::Operation *op);
  /// An index that fits an int, as one.
  Expression asInt(mlir::Value value);
  /// A map's row or column over a constant, or the rest of that, by the digits of its layout.
  std::optional<Expression> partOfCoordinate(mlir::Operation *op);
  /// A map's column less something.
  std::optional<Expression> lessThanColumn(mlir::Operation *op, const Expression &less);
  mlir::LogicalResult print(mlir::memref::LoadOp load);
  mlir::LogicalResult print(mlir::memref::StoreOp store);

  // Tiles in registers (Tiles.cpp, Transfers.cpp).
  mlir::LogicalResult print(tile::MapOp map);
  mlir::LogicalResult print(tile::ReduceOp reduce);
  mlir::LogicalResult print(tile::LoadOp load);
  mlir::LogicalResult print(tile::StoreOp store);
  mlir::LogicalResult print(tile::StridedRowsOp rows);
  mlir::LogicalResult print(tile::PagedRowsOp rows);
  Expression stridedRow(tile::StridedRowsOp rows, const Expression &index);
  void finishCombined(mlir::Value result, const tile::Layout &space, bool isMax);
  /// Prints the region for one element; what it yields.
  mlir::FailureOr<llvm::SmallVector<Expression>> mapBody(tile::MapOp map, const Expression &index);

  // Copies into shared memory (Copies.cpp).
  mlir::LogicalResult print(tile::CopyAsyncOp copy);
  mlir::LogicalResult printByTurn(tile::CopyAsyncOp first);
  void endGroup(tile::CopyAsyncOp copy);
  mlir::FailureOr<Expression> rowOfTurn(mlir::Value rows, const Expression &turn,
                                        llvm::SmallVectorImpl<mlir::Value> &made);
  mlir::FailureOr<Expression> yieldOfTurn(tile::MapOp map, const Expression &turn,
                                          llvm::SmallVectorImpl<mlir::Value> &made);
  struct RowText {
    std::string present, address; ///< conditions and addresses are looked at where they are used
  };
  mlir::FailureOr<RowText> rowOfCopy(mlir::Value rows, const Expression &turn,
                                     llvm::SmallVectorImpl<mlir::Value> &made);
  std::string fromLane(tile::ConvertOp convert, const Expression &index);
  struct CopyText {
    std::string to, from, rest; ///< arguments
  };
  CopyText textOf(tile::CopyAsyncOp copy);
  /// A copy of one row, in a loop of a row a turn.
  struct TurnText {
    std::string guard, parameters, type, to, place, from, rest;
    RowText at;
    bool joins(const TurnText &other) const;
  };
  mlir::FailureOr<TurnText> textOfTurn(tile::CopyAsyncOp copy, llvm::StringRef row,
                                       llvm::SmallVectorImpl<mlir::Value> &made);

  // Shared memory and products (Shared.cpp).
  mlir::LogicalResult print(tile::PutOp put);
  mlir::LogicalResult print(tile::GetOp get);
  mlir::LogicalResult print(tile::ConvertOp convert);
  mlir::LogicalResult print(tile::MmaOp mma);
  mlir::LogicalResult print(tile::FoldOp fold);
  mlir::LogicalResult print(tile::ReduceColumnsOp reduce);
  mlir::LogicalResult printStoreFromShared(tile::StoreOp store);
  std::string rowArray(mlir::Value rows);
  std::string slotOf(mlir::Value buffer, mlir::Value slot, int64_t ahead);

  // Values (Values.cpp).
  std::string name(mlir::Value value, llvm::StringRef otherwise);
  Expression use(mlir::Value value);
  bool hasItsOwnLine(mlir::Value value);
  /// Binds a scalar: as expression where it is used once, else as a constant.
  void define(mlir::Value value, Expression expression);
  std::string typeName(mlir::Type type);
  /// Registers of a tile's variable.
  int64_t registersOf(mlir::Value tile);
  bool isPacked(mlir::Value tile);
  /// f32 elements, neighbours of a row in neighbouring registers.
  bool holdsPairs(mlir::Value tile);
  std::string elementName(mlir::Value tile);
  std::string declare(mlir::Value tile, llvm::StringRef init = "");
  /// Element `index` (of the layout's registers) of a tile.
  Expression element(mlir::Value tile, const Expression &index);
  bool diesAt(mlir::Value value, mlir::Operation *op);
  /// The operand's variable if it dies at `op` and has the shape of `value`, else a new one.
  std::string takeOver(mlir::Value value, mlir::Value operand, mlir::Operation *op);
  void copyTile(const std::string &to, mlir::Value from);
  void fill(const std::string &variable, int64_t count, const std::string &value);
  /// `body(index)` for every register of `layout`, unrolled.
  void forEachRegister(const tile::Layout &layout, int64_t step,
                       llvm::function_ref<void(const Expression &index)> body);
  /// Condition under which the element lies in a tile of this shape; empty if always.
  std::string inside(mlir::RankedTensorType type, const tile::Layout &layout,
                     const Expression &index);
  Expression rowOf(const tile::Layout &layout, const Expression &index);
  /// The shared-memory address of a register's element in a tile called `tile`. With `slice`
  /// rows in a slice, of the row within its slice; `first` rows further on.
  std::string elementAt(const std::string &element, const std::string &tile,
                        const tile::Layout &layout, const Expression &index, int64_t slice = 0,
                        const Expression &first = number(0));
  Expression columnOf(const tile::Layout &layout, const Expression &index);
  /// The part of a coordinate that the thread decides, as a constant of the kernel.
  Expression threadPart(const tile::Layout &layout, tile::LayoutDim dim);
  tile::Layout layoutOf(mlir::Value tile);
  std::string warpRow(const tile::Layout &layout);

  mlir::func::FuncOp kernel;
  int64_t warps;
  bool complete = true; ///< every value that was used had been printed
  Names names;
  Writer w;
  Lines result;
  llvm::DenseMap<mlir::Value, Expression> bound;
  llvm::DenseMap<mlir::Value, std::string> variables; ///< of tiles in registers
  llvm::DenseMap<mlir::Value, std::string> places;    ///< variables that tiles to come are put in
  llvm::DenseMap<int64_t, std::string> constants;     ///< names of numbers with a meaning
  struct ThreadConstant {
    std::string name, expression, comment;
  };
  std::vector<ThreadConstant> threadConstants;
  llvm::SmallPtrSet<mlir::Operation *, 4> begun; ///< copies in the loop of an earlier one
  /// The element that a map's region is printed for.
  struct Element {
    tile::MapOp map;
    tile::Layout space;
    Expression index;
  };
  std::optional<Element> current;
};

} // namespace llmopt::cuda
