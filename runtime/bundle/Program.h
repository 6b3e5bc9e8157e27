// A compiled spec: everything that the runtime needs to run it, and nothing of the
// compiler. Written by codegen, saved and loaded by BundleIO.h.
#pragma once

#include "runtime/bundle/Bounds.h"
#include "runtime/bundle/WorkItem.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace llmopt::bundle {

enum class ElementType : uint8_t { F32, F16, BF16, I8, I32, I64, U32, Bool };

/// What an array is for. Roles below `ItemOffsets` are the caller's arrays, those from
/// it on belong to the plan and are filled in by the runtime.
enum class BufferRole : uint8_t {
  Query,   ///< (B, L, H, D) or ragged (T, H, D)
  Key,     ///< (B, L, Hkv, D) or ragged (T, Hkv, D)
  Value,   ///< as Key with d_v
  KeyPool, ///< pages: see AttentionFacts::kvOrder
  ValuePool,
  BlockTable,  ///< i32: (B, columns) or indices of the indptr form
  TableIndptr, ///< i32 (B + 1), indptr form only; read by the planner
  CuSeqlensQ,  ///< i32 (B + 1); read by the planner
  CuSeqlensKv, ///< i32 (B + 1); read by the planner
  KvLen,       ///< i32 (B); read by the planner
  SlotMapping, ///< i64 (T): slot for each appended row, -1 is skipped
  NewKey,      ///< rows to append (T, Hkv, D)
  NewValue,
  Bias,             ///< additive, broadcastable (B|1, H|1, Lq|1, Lkv|1)
  DenseMask,        ///< i8 booleans, shaped as Bias
  PerHead,          ///< (H): per-head scale, window, slope, ...
  SinkLogit,        ///< f32 (H)
  User,             ///< a tensor that a custom region reads
  PartialIn,        ///< attn.merge: partial outputs (N, T, H, Dv), f32
  PartialLseIn,     ///< attn.merge: (N, T, H), f32
  Output,           ///< as Query with d_v
  Lse,              ///< f32 (B, L, H) or (T, H)
  Tree,             ///< i64 (B, L) or (T): of each query its ancestors among the sequence's queries
  ItemOffsets = 64, ///< u32 (workers + 1)
  Items,            ///< WorkItem
  Rows,             ///< RowEntry
  Sequences,        ///< SequenceRecord
  Scalars,          ///< 8 bytes each: i64, f64, or f32 in the low 4 bytes
  PartialOut,       ///< f32 (partial rows, d_v)
  PartialLse,       ///< f32 (partial rows)
  MergeOffsets,     ///< u32 (workers + 1)
  Merges,           ///< MergeItem
  Counters,         ///< u64: tiles visited, tiles predicated (per worker, 2 each); nullable
};

struct Buffer {
  std::string name; ///< the caller's name for it: "q", "k_pool", "block_table", ...
  BufferRole role;
  ElementType type;
  bool output = false;
  bool nullable = false;
  std::vector<int64_t> extents; ///< static extents, -1 where run-time
  bool operator==(const Buffer &) const = default;
};

enum class SlotKind : uint8_t {
  Pointer, ///< address of the buffer's first element
  Stride,  ///< stride of `dim` in elements; 0 where the extent is broadcast
  Extent,  ///< extent of `dim`
};

/// Meaning of one 8-byte slot of the parameter block.
struct Slot {
  SlotKind kind;
  uint32_t buffer;
  uint32_t dim = 0;
  bool operator==(const Slot &) const = default;
};

enum class ScalarType : uint8_t { I64, F32, F64, Index = I64 };

/// A run-time number: with the spec's value as default (scale, window, softcap, ...), or one that
/// each call gives (scalars of args, what regions read from outside).
struct Scalar {
  std::string name;
  ScalarType type;
  int64_t intDefault = 0;
  double floatDefault = 0;
  /// Buffer of per-head values that overrides the default; -1: one value for all heads.
  int32_t perHeadBuffer = -1;
  /// Smallest value that a caller may give, and what to say of a smaller one. Values of
  /// `perHeadBuffer` are not looked at.
  double least = -std::numeric_limits<double>::infinity();
  std::string advice = {};
  /// Largest value that a caller may give, as `least`.
  double most = std::numeric_limits<double>::infinity();
  bool required = false; ///< without default: a call that does not give it is refused
  bool operator==(const Scalar &) const = default;
};

enum class KernelKind : uint8_t {
  Attend,  ///< attn.attention: work items of the plan
  Merge,   ///< partials of split items: merge items of the plan
  Append,  ///< attn.append: itemOffsets share out the tokens of the slot mapping
  Combine, ///< attn.merge: itemOffsets share out the T * H (token, head) pairs
};

struct Kernel {
  std::string entry;
  KernelKind kind;
  uint32_t image = 0;
  uint32_t tileRows = 0; ///< Attend: most packed rows of an item
  uint32_t tileKeys = 0; ///< Attend: keys of a tile; split boundaries are multiples of it
  uint64_t scratchBytes = 0;
  double costPerTile = 1; ///< relative time of one tile of one head; the planner chooses by it
  /// Attend: KV heads whose items the kernel takes together, see WorkItem. Divides the KV heads.
  uint32_t itemHeads = 1;
  /// Further images with this entry: the PTX beside a cubin, cubins for other chips. The
  /// loader takes the best that its device runs; `image` wins among equals.
  std::vector<uint32_t> otherImages = {};
  // CUDA launches: one block for each worker.
  uint32_t blockThreads = 0; ///< 0 on a CPU
  uint32_t sharedBytes = 0;  ///< dynamic shared memory of a block
  uint32_t clusterBlocks = 1;
  bool operator==(const Kernel &) const = default;
};

enum class ImageFormat : uint8_t {
  Object, ///< relocatable ELF object for a CPU
  Cubin,  ///< machine code for the chip `Image::cpu` ("sm_80") and later ones of its family
  Ptx,    ///< text for every chip from `Image::cpu` ("compute_80") on, compiled by the driver
};

/// What the assembler reported of an image's kernel: of CUDA images, all 0 on a CPU.
struct ImageFigures {
  uint32_t registers = 0; ///< of a thread
  uint32_t stackBytes = 0, spillStoreBytes = 0, spillLoadBytes = 0;
  uint32_t sharedBytes = 0;          ///< static shared memory of a block
  std::vector<std::string> warnings; ///< "C7511: ...", as the assembler words them
  bool operator==(const ImageFigures &) const = default;
};

struct Image {
  std::string triple, cpu, features; ///< features as LLVM's "+avx2,+fma,..."
  std::vector<uint8_t> bytes;
  ImageFormat format = ImageFormat::Object;
  /// CUDA version that a driver must support, 1000 * major + 10 * minor; 0: any.
  uint32_t leastDriver = 0;
  ImageFigures figures = {};
  bool operator==(const Image &) const = default;
};

enum class QueryForm : uint8_t { Dense, Ragged };
enum class KvForm : uint8_t { Dense, Ragged, Paged };
enum class TableForm : uint8_t { BlockTable, Indptr };
enum class KvOrder : uint8_t {
  TokenMajor, ///< (pages, page, Hkv, D), "NHD"
  HeadMajor,  ///< (pages, Hkv, page, D), "HND"
};

/// The numbers that the planner and the argument check need.
struct AttentionFacts {
  uint32_t queryHeads = 0, kvHeads = 0, dQk = 0, dV = 0;
  QueryForm queryForm = QueryForm::Dense;
  KvForm kvForm = KvForm::Dense;
  TableForm tableForm = TableForm::BlockTable;
  KvOrder kvOrder = KvOrder::TokenMajor;
  bool interleaved = false; ///< K and V in one pool: (pages, 2, ...)
  uint32_t pageSize = 0;
  bool topLeft = false; ///< query positions start at 0 instead of kvLen - qLen
  bool batchInvariant = false;
  uint32_t splitKeys = 0; ///< batch-invariant split length in keys; 0: planner's choice
  uint32_t fixedSplits = 0;
  /// Scores depend on positions and the head, not on the sequence: an item may hold rows of
  /// several sequences.
  bool mixesSequences = false;
  BoundSet may;    ///< keys that a query range may see; the planner balances by it
  BoundSet surely; ///< keys that all of it sees; what sequences share is taken from it
  bool operator==(const AttentionFacts &) const = default;
};

struct Program {
  uint32_t abiVersion = kAbiVersion;
  std::string key;            ///< opaque content key, hex
  std::string name;           ///< the spec's function
  std::string target = "cpu"; ///< what it was compiled for: "cpu", "cuda:sm_80"
  std::string ir;             ///< canonical IR text
  AttentionFacts facts;
  std::vector<Buffer> buffers;
  std::vector<Slot> slots;
  std::vector<Scalar> scalars;
  std::vector<Kernel> kernels; ///< run in this order; Attend variants share the items' pass
  std::vector<Image> images;
  bool operator==(const Program &) const = default;
};

} // namespace llmopt::bundle
