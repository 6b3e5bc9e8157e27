#include "tools/harness/Check.h"

#include "dialect/reference/Cache.h"

#include <fmt/format.h>

namespace llmopt::harness {

namespace {

using reference::error;
using reference::Row;
using reference::RowResult;

void fail(Report &report, std::string text) {
  if (report.passed)
    report.failure = std::move(text);
  report.passed = false;
}

/// Rows of a merge's output (T, H).
reference::RowChoice mergeRows(const HostArray &output) {
  reference::RowChoice choice;
  for (int64_t t = 0; t < output.shape[0]; ++t)
    for (int64_t h = 0; h < output.shape[1]; ++h)
      choice.rows.push_back({t, 0, h});
  choice.total = int64_t(choice.rows.size());
  return choice;
}

void judgeRow(const RowResult &result, const Row &row, llvm::ArrayRef<int64_t> index,
              const HostArray &output, const HostArray *lse, Report &report) {
  llvm::SmallVector<int64_t, 5> at(index);
  std::vector<double> got;
  at.push_back(0);
  for (at.back() = 0; at.back() < output.shape.back(); ++at.back())
    got.push_back(output.get(at));
  double gotLse = lse ? lse->get(index) : 0;
  reference::RowVerdict verdict =
      reference::judge(result, output.type, got, lse ? &gotLse : nullptr);
  report.worst = std::fmax(report.worst, verdict.worst);
  report.worstLse = std::fmax(report.worstLse, verdict.worstLse);
  ++report.rowsChecked;
  if (verdict.passed || !report.passed)
    return;
  report.row = row;
  report.component = verdict.component;
  report.got = verdict.got;
  report.want = verdict.want;
  report.tolerance = verdict.tolerance;
  std::string what =
      verdict.component < 0 ? "LSE" : "component " + std::to_string(verdict.component);
  fail(report, fmt::format("sequence {}, query {}, head {}, {}: got {:.9g}, want {:.9g} +- {:.3g} "
                           "({} visible keys)",
                           row.batch, row.query, row.head, what, verdict.got, verdict.want,
                           verdict.tolerance, result.visible));
}

/// Executes the append on copies of the pools; bound to `inputs` from then on.
llvm::Error append(const Spec &spec, const Call &call, reference::Inputs &inputs,
                   std::vector<HostArray> &copies) {
  copies.reserve(2);
  for (const HostArray &array : call.arrays)
    if (array.access == HostArray::Access::InOut) {
      HostArray &copy = copies.emplace_back(array);
      copy.restore();
      inputs.arrays[array.name] = copy.view();
    }
  return reference::execute(spec.append, inputs);
}

} // namespace

llvm::Expected<Report> check(const Spec &spec, const Call &call, uint64_t seed, int64_t limit) {
  Report report;
  reference::Inputs inputs = call.inputs();
  std::vector<HostArray> pools;
  if (spec.append) {
    if (llvm::Error failure = append(spec, call, inputs, pools))
      return failure;
    for (const HostArray &pool : pools)
      if (pool.elementBytes() != call.find(pool.name)->elementBytes())
        fail(report,
             "'" + pool.name + "' does not hold what the append writes, or more was written");
  }
  const HostArray *output = call.find("o"), *lse = call.find("lse");
  if (output) {
    reference::RowChoice choice;
    llvm::Expected<std::vector<RowResult>> results = std::vector<RowResult>();
    std::vector<llvm::SmallVector<int64_t, 4>> indices;
    if (spec.merge) {
      choice = mergeRows(*output);
      results = reference::evaluate(spec.merge, inputs, choice.rows, reference::Mode::Rounded);
      for (const Row &row : choice.rows)
        indices.push_back({row.batch, row.head});
    } else {
      llvm::Expected<reference::Lengths> lengths = reference::lengthsOf(spec.attention, inputs);
      if (!lengths)
        return lengths.takeError();
      choice = reference::chooseRows(*lengths, call.boundaries, seed, limit);
      results = reference::evaluate(spec.attention, inputs, choice.rows, reference::Mode::Rounded);
      llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>> places =
          reference::rowIndices(spec.attention, inputs, choice.rows);
      if (!places)
        return llvm::joinErrors(places.takeError(), results.takeError());
      indices = std::move(*places);
    }
    if (!results)
      return results.takeError();
    report.rowsTotal = choice.total;
    for (size_t i = 0; i < choice.rows.size(); ++i)
      judgeRow((*results)[i], choice.rows[i], indices[i], *output, lse, report);
  }
  for (const HostArray &array : call.arrays)
    if (std::string text = array.damage(call.rows); !text.empty())
      fail(report, text);
  return report;
}

std::string differentBits(const Call &a, const Call &b) {
  for (const char *name : {"o", "lse"}) {
    const HostArray *x = a.find(name), *y = b.find(name);
    if (!x || !y)
      continue;
    std::vector<uint8_t> xs = x->elementBytes(), ys = y->elementBytes();
    if (xs.size() != ys.size())
      return std::string("'") + name + "' differs in size";
    auto [at, other] = std::mismatch(xs.begin(), xs.end(), ys.begin());
    if (at != xs.end()) {
      int64_t element = (at - xs.begin()) / int64_t(reference::sizeOf(x->type));
      int64_t rowSize = std::string(name) == "o" ? x->shape.back() : 1;
      return fmt::format("'{}' differs in row {}, component {}", name, element / rowSize,
                         element % rowSize);
    }
  }
  return "";
}

} // namespace llmopt::harness
