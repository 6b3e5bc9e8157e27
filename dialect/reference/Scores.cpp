#include "dialect/reference/Scores.h"

#include "dialect/reference/Region.h"

#include "llvm/ADT/DenseMap.h"

#include <cmath>
#include <limits>

namespace llmopt::reference {

namespace {

llvm::DenseMap<mlir::TypeID, ScoreCompiler> &plugins() {
  static llvm::DenseMap<mlir::TypeID, ScoreCompiler> table;
  return table;
}

double rounded(double x, Mode mode) { return mode == Mode::Rounded ? double(float(x)) : x; }

llvm::Expected<ScoreFunction> softcap(attn::SoftcapAttr attr, const Context &context) {
  llvm::Expected<Number> cap = context.number(attr, 0, attr.getCap());
  if (!cap)
    return cap.takeError();
  return [n = *cap](double s, const Pair &p, Mode mode) {
    double c = n.of(p.head);
    // A key that a bias of -inf hides stays hidden (A20), whatever follows.
    if (c <= 0 || s == -std::numeric_limits<double>::infinity())
      return s;
    return rounded(c * rounded(std::tanh(rounded(s / c, mode)), mode), mode);
  };
}

llvm::Expected<ScoreFunction> alibi(attn::AlibiAttr attr, const Context &context) {
  llvm::Expected<Number> slope = context.number(attr, 0, attr.getSlope());
  if (!slope)
    return slope.takeError();
  return [n = *slope](double s, const Pair &p, Mode mode) {
    return rounded(s + rounded(n.of(p.head) * double(p.key - p.queryPosition), mode), mode);
  };
}

llvm::Expected<ScoreFunction> bias(attn::BiasAttr attr, const Context &context) {
  llvm::Expected<Array> array = context.argument(attr.getArg());
  if (!array)
    return array.takeError();
  return [a = *array](double s, const Pair &p, Mode mode) {
    return rounded(s + a.broadcastAt({p.batch, p.head, p.queryIndex, p.keyIndex}), mode);
  };
}

llvm::Expected<ScoreFunction> custom(attn::CustomScoreAttr attr, const Context &context) {
  if (attr.getRegion() >= context.op.getBodies().size())
    return error("score region " + llvm::Twine(attr.getRegion()) + " does not exist");
  llvm::Expected<Region> region =
      Region::compile(context.op.getBodies()[attr.getRegion()], context);
  if (!region)
    return region.takeError();
  return [r = *region](double s, const Pair &p, Mode mode) { return r.score(s, p, mode); };
}

llvm::Expected<ScoreFunction> compile(mlir::Attribute attr, const Context &context) {
  if (auto a = llvm::dyn_cast<attn::SoftcapAttr>(attr))
    return softcap(a, context);
  if (auto a = llvm::dyn_cast<attn::AlibiAttr>(attr))
    return alibi(a, context);
  if (auto a = llvm::dyn_cast<attn::BiasAttr>(attr))
    return bias(a, context);
  if (auto a = llvm::dyn_cast<attn::CustomScoreAttr>(attr))
    return custom(a, context);
  if (auto it = plugins().find(attr.getTypeID()); it != plugins().end())
    return it->second(attr, context);
  std::string text;
  llvm::raw_string_ostream(text) << attr;
  return error("the oracle does not know score " + text +
               "; a plugin teaches it by registerScore()");
}

} // namespace

void registerScore(mlir::TypeID kind, ScoreCompiler compiler) {
  plugins()[kind] = std::move(compiler);
}

llvm::Expected<ScoreFunction> compileScores(const Context &context) {
  std::vector<ScoreFunction> functions;
  mlir::ArrayAttr scores = context.op.getScoresAttr();
  if (!scores || scores.empty())
    return ScoreFunction();
  for (mlir::Attribute attr : scores) {
    llvm::Expected<ScoreFunction> function = compile(attr, context);
    if (!function)
      return function.takeError();
    functions.push_back(*function);
  }
  return [fs = std::move(functions)](double s, const Pair &p, Mode mode) {
    for (const ScoreFunction &f : fs)
      s = f(s, p, mode);
    return s;
  };
}

} // namespace llmopt::reference
