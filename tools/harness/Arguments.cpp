#include "tools/harness/Arguments.h"

#include "dialect/reference/Context.h"
#include "tools/harness/Random.h"

#include "mlir/IR/TypeUtilities.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

namespace llmopt::harness {

namespace {

enum class Role { Unknown, DenseMask, Tree, Bias, Sink, Number };

struct Use {
  Role role = Role::Unknown;
  llvm::StringRef number; ///< attn::NumberUse::name
};

/// Stands for the names of several numbers that one operand gives.
constexpr llvm::StringLiteral kShared = "shared";

/// What the op does with each of its arguments.
std::vector<Use> usesOf(attn::AttentionOp op) {
  std::vector<Use> uses(op.getArgs().size());
  auto note = [&](unsigned index, Role role, llvm::StringRef name = "") {
    if (index >= uses.size())
      return;
    bool twice = uses[index].role != Role::Unknown && uses[index].number != name;
    uses[index] = twice ? Use{Role::Number, kShared} : Use{role, name};
  };
  if (mlir::Attribute mask = op.getMaskAttr())
    mask.walk([&](attn::DenseMaskAttr dense) { note(dense.getArg(), Role::DenseMask); });
  if (attn::TreeAttr tree = attn::treeOf(op.getMaskAttr()))
    note(tree.getArg(), Role::Tree);
  if (mlir::ArrayAttr scores = op.getScoresAttr())
    for (mlir::Attribute score : scores)
      if (auto bias = llvm::dyn_cast<attn::BiasAttr>(score))
        note(bias.getArg(), Role::Bias);
  for (const attn::NumberUse &use : op.getNumbers())
    if (auto arg = llvm::dyn_cast<attn::ArgAttr>(use.value))
      note(arg.getIndex(), Role::Number, use.name);
  if (attn::ArgAttr sink = op.getSinkAttr())
    note(sink.getIndex(), Role::Sink);
  return uses;
}

double numberValue(llvm::StringRef name, bool isFloat, const ArgumentExtents &extents,
                   const Shape &shape, Random &random) {
  int64_t most = std::max<int64_t>(1, extents.keys);
  if (name == kShared) // good for any of them
    return isFloat ? 0.1 + random.uniform() : double(random.integer(1, 4));
  if (!isFloat) {
    if (name.contains("left") || name.contains("right"))
      return double(random.integer(-1, most));
    if (name.contains("dilation"))
      return double(random.integer(1, 4));
    if (name.contains("sink"))
      return double(random.integer(0, 4));
    return double(random.integer(1, most));
  }
  if (name.contains("scale"))
    return (0.5 + random.uniform()) / std::sqrt(double(shape.qkDim));
  if (name.contains("softcap"))
    return 1 + 29 * random.uniform();
  if (name.contains("alibi"))
    return std::exp2(-1 - 7 * random.uniform());
  return random.normal();
}

double element(const Use &use, ElementType type, const ArgumentExtents &extents, const Shape &shape,
               Random &random) {
  switch (use.role) {
  case Role::DenseMask:
    return random.chance(0.75);
  case Role::Tree: // any set will do; -1 is causal. A double holds so many bits.
    return random.chance(0.25) ? -1 : double(random.integer(0, int64_t(1) << 52));
  case Role::Bias:
    return random.chance(0.1) ? -std::numeric_limits<double>::infinity() : 2 * random.normal();
  case Role::Sink:
    return 2 * random.normal();
  case Role::Number:
    return numberValue(use.number, reference::isFloat(type), extents, shape, random);
  case Role::Unknown: // read by a region
    return reference::isFloat(type) ? random.normal() : double(random.integer(1, 8));
  }
  return 0;
}

/// A value that the type of a scalar which a region reads holds.
double capturedValue(mlir::Type type, Random &random) {
  if (llvm::isa<mlir::FloatType>(type))
    return random.normal();
  if (type.isInteger(1))
    return double(random.integer(0, 1));
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  return double(random.integer(1, width <= 4 ? (1 << (width - 1)) - 1 : 8));
}

/// Integers of heads that low or high bits alone tell wrong, each beyond every position or below
/// all, and a small one among them.
void fillFar(HostArray &array) {
  constexpr double kMost64 = 0x1p63 - 0x1p10; // the largest that a double holds
  const std::array wide = {0x1p32 + 2, 3.0, 0x1p40, kMost64, 0x1p31, -0x1p40, -0x1p32 + 3, -0x1p63};
  const std::array narrow = {0x1p31 - 1, 3.0, -0x1p31, 0x1p30};
  size_t head = 0;
  array.fill([&] {
    size_t i = head++;
    return array.type == ElementType::I64 ? wide[i % wide.size()] : narrow[i % narrow.size()];
  });
}

llvm::SmallVector<int64_t, 5> extentsOf(mlir::Type type, const ArgumentExtents &extents) {
  llvm::SmallVector<int64_t, 5> shape;
  auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(type);
  if (!tensor)
    return shape;
  const int64_t rank4[] = {extents.batch, extents.heads, extents.queries, extents.keys};
  // A region may index any other tensor by any of the four.
  int64_t any = *std::max_element(std::begin(rank4), std::end(rank4));
  for (int64_t d = 0; d < tensor.getRank(); ++d) {
    int64_t wanted = tensor.getRank() == 4 ? rank4[d] : any;
    shape.push_back(tensor.isDynamicDim(unsigned(d)) ? wanted : tensor.getDimSize(unsigned(d)));
  }
  return shape;
}

} // namespace

llvm::Error addArguments(attn::AttentionOp op, const ArgumentExtents &extents, const Shape &shape,
                         Call &call) {
  std::vector<Use> uses = usesOf(op);
  for (size_t i = 0; i < uses.size(); ++i) {
    mlir::Type type = op.getArgs()[unsigned(i)].getType();
    std::optional<ElementType> format = reference::elementTypeOf(mlir::getElementTypeOrSelf(type));
    if (!format)
      return reference::error("the harness does not know the element type of args operand " +
                              llvm::Twine(i));
    llvm::SmallVector<int64_t, 5> size = extentsOf(type, extents);
    if (uses[i].role == Role::Tree) {
      llvm::ArrayRef<int64_t> query = call.find("q")->shape;
      size.assign(query.begin(), query.end() - 2);
    }
    if (uses[i].role == Role::Number || uses[i].role == Role::Sink)
      for (int64_t &extent : size)
        extent = shape.heads; // one value a head
    std::string name = "arg" + std::to_string(i);
    StrideStyle style = size.size() == 4 ? shape.strides : StrideStyle::Packed;
    HostArray &array = call.arrays.emplace_back(name, *format, size, HostArray::Access::In, style);
    if (shape.farNumbers && uses[i].role == Role::Number && !size.empty() &&
        !reference::isFloat(*format)) {
      fillFar(array);
      continue;
    }
    Random random(shape.seed, name);
    array.fill([&] { return element(uses[i], *format, extents, shape, random); });
  }
  return llvm::Error::success();
}

llvm::Error addNumbers(attn::AttentionOp op, const Shape &shape, Call &call) {
  std::map<std::string, bool> known; // whether it is an integer
  for (const reference::LiteralNumber &literal : reference::literalNumbers(op))
    known[literal.name] = !literal.use.isFloat;
  for (mlir::Region &body : op.getBodies())
    body.walk([&](mlir::Operation *inner) {
      for (mlir::Value operand : inner->getOperands()) {
        auto argument = llvm::dyn_cast<mlir::BlockArgument>(operand);
        if (!argument || body.isAncestor(argument.getParentRegion()) ||
            llvm::is_contained(op.getArgs(), operand))
          continue;
        std::string name = "user" + std::to_string(argument.getArgNumber());
        Random random(shape.seed, name);
        call.numbers.try_emplace(name, capturedValue(argument.getType(), random));
        known[name] = !llvm::isa<mlir::FloatType>(argument.getType());
      }
    });
  for (const auto &[name, value] : call.numbers) {
    auto it = known.find(name);
    if (it == known.end())
      return reference::error("the spec has no number '" + name + "'; it has " +
                              llvm::join(llvm::make_first_range(known), ", "));
    if (it->second && (value != std::trunc(value) || std::fabs(value) >= 0x1p53))
      return reference::error(
          fmt::format("number '{}' is {}; the spec wants an integer", name, value));
  }
  return llvm::Error::success();
}

} // namespace llmopt::harness
