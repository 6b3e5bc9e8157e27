#include "tests/unit/sim/Evaluate.h"

#include "tests/unit/sim/Support.h"

namespace llmopt::sim::test {

namespace {

constexpr const char *kNames[] = {"a", "b", "c", "e"};
constexpr size_t kStride = 4; // inputs of a row in memory

std::string loadOf(const std::string &type, const std::string &name, size_t index) {
  if (type == "pred")
    return fmt::format("  ld.global.u32 t_{0}, [row+{1}];\n  setp.ne.u32 {0}, t_{0}, 0;\n", name,
                       8 * index);
  return fmt::format("  ld.global.{} {}, [row+{}];\n", type, name, 8 * index);
}

std::string storeOf(const std::string &type) {
  if (type == "pred")
    return "  selp.u32 t_d, 1, 0, d;\n  st.global.u32 [place], t_d;\n";
  return fmt::format("  st.global.{} [place], d;\n", type);
}

std::string instructionText(const std::string &op, size_t sources) {
  if (op.find('$') == std::string::npos) {
    std::string text = op + " d";
    for (size_t i = 0; i < sources; ++i)
      text += std::string(", ") + kNames[i];
    return text + ";";
  }
  std::string text;
  for (char c : op)
    if (c != '$')
      text += c;
  return text;
}

} // namespace

std::vector<uint64_t> evaluate(const std::string &op, const std::string &result,
                               const std::vector<std::string> &sources,
                               const std::vector<std::vector<uint64_t>> &inputs) {
  std::string body = fmt::format("  .reg .{} d;\n  .reg .b32 t_d;\n  .reg .b64 row, place;\n"
                                 "  mov.u32 %r1, %ctaid.x;\n  mov.u32 %r2, %ntid.x;\n"
                                 "  mad.lo.u32 %r0, %r1, %r2, %r0;\n"
                                 "  mad.wide.u32 row, %r0, {}, %d0;\n"
                                 "  mad.wide.u32 place, %r0, 8, %d1;\n",
                                 result, 8 * kStride);
  for (size_t i = 0; i < sources.size(); ++i) {
    body += fmt::format("  .reg .{} {};\n  .reg .b32 t_{};\n", sources[i], kNames[i], kNames[i]);
    body += loadOf(sources[i], kNames[i], i);
  }
  body += "  " + instructionText(op, sources.size()) + "\n" + storeOf(result);
  size_t blocks = (inputs.size() + 31) / 32;
  std::vector<uint64_t> in(blocks * 32 * kStride), out(blocks * 32);
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t j = 0; j < inputs[i].size(); ++j)
      in[i * kStride + j] = inputs[i][j];
  RunResult run = runKernel(kernelText(body, "", "sm_100"), in, out, {32, 1, 1},
                            {static_cast<uint32_t>(blocks), 1, 1});
  EXPECT_TRUE(run.status.ok()) << run.status.toString();
  out.resize(inputs.size());
  return out;
}

void expectRows(const std::string &op, const std::string &result,
                const std::vector<std::string> &sources, const std::vector<Row> &rows) {
  std::vector<std::vector<uint64_t>> inputs;
  for (const Row &row : rows)
    inputs.push_back(row.in);
  std::vector<uint64_t> out = evaluate(op, result, sources, inputs);
  uint64_t mask = result == "b16"                      ? 0xffff
                  : result == "b32" || result == "f32" ? 0xffffffff
                                                       : ~0ull;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string in;
    for (uint64_t value : rows[i].in)
      in += fmt::format(" {:#x}", value);
    EXPECT_EQ(out[i] & mask, rows[i].out & mask) << fmt::format(
        "{} of{}: got {:#x}, expected {:#x}", op, in, out[i] & mask, rows[i].out & mask);
  }
}

} // namespace llmopt::sim::test
