// What is refused when arguments are bound, and what the messages say.
#include "CallTestUtil.h"

#include "runtime/bundle/BundleIO.h"
#include "runtime/device/Batch.h"

#include <bit>

using namespace calltest;

namespace {

class BindErrors : public testing::Test {
protected:
  /// Message of binding after `change` on the arguments.
  template <typename Change> std::string message(Change change, const BindOptions &options = {}) {
    CallArguments arguments = data.arguments();
    change(arguments);
    StatusOr<BoundCall> call = BoundCall::bind(program, arguments, options);
    return call ? "bound" : call.status().message();
  }

  Spec spec;
  std::shared_ptr<DeviceProgram> program = loadOrDie(makeProgram(spec));
  Case data{spec, {2, 1}, {10, 7}};
};

} // namespace

TEST_F(BindErrors, NamesThatDoNotExistOrAreMissing) {
  std::string takes = "the program takes q, k, v, o, lse, table, table_indptr, cu_q, cu_k, "
                      "kv_len, slots, new_k, new_v, none";
  EXPECT_EQ(message([](CallArguments &a) { a.arrays.erase("q"); }),
            "array 'q' (query) is missing; " + takes);
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["qq"] = a.arrays["q"]; }),
            "there is no array 'qq'; " + takes);
  EXPECT_EQ(message([](CallArguments &a) { a.arrays[""] = a.arrays["q"]; }),
            "there is no array ''; " + takes)
      << "plan buffers are not the caller's";
  EXPECT_EQ(message([](CallArguments &a) { a.scalars["cap"] = 1.0; }),
            "there is no scalar 'cap'; the program takes scale, window");
  EXPECT_EQ(message([](CallArguments &a) { a.scalars["window"] = 1.5; }),
            "scalar 'window' is 1.5; the program wants an integer");
}

TEST_F(BindErrors, TypesRanksAndExtents) {
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["q"].type = ElementType::BF16; }),
            "array 'q' has element type bf16; the program wants f32");
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["q"].shape.push_back(1); }),
            "array 'q' has 4 extents and 3 strides; the program wants rank 3 "
            "with shape (?, "
            "4, 8)");
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["q"].shape[2] = 9; }),
            "array 'q' has shape (3, 4, 9); the program wants (?, 4, 8)");
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["q"].shape[0] = -5; }),
            "array 'q' has shape (?, 4, 8); the program wants (?, 4, 8)");
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["q"].data = nullptr; }),
            "array 'q' with shape (3, 4, 8) has a null pointer; memory is needed");
}

TEST_F(BindErrors, ExtentsThatMustAgree) {
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["o"].shape[0] = 2; }),
            "array 'o' has extent 2 in dimension 0 (query tokens); array 'q' "
            "asks for 3");
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["v"].shape[0] = 1; }),
            fmt::format("array 'v' has extent 1 in dimension 0 (pages); array "
                        "'k' asks for {}",
                        data.keyTokens / 4));
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["cu_q"].shape[0] = 2; }),
            "array 'cu_q' has extent 2 in dimension 0 (batch plus one); array "
            "'table' asks "
            "for 3");
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["kv_len"].shape[0] = 1; }),
            "array 'kv_len' has extent 1 in dimension 0 (batch); array 'table' "
            "asks for 2");
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["cu_q"].shape[0] = 0; }),
            "array 'cu_q' has no entry; an offset for each sequence and one "
            "more are needed");
}

TEST_F(BindErrors, OffsetsAndLengths) {
  data.cuQ = {0, 3, 2};
  EXPECT_EQ(message([](CallArguments &) {}),
            "array 'cu_q' has 2 after 3 at entry 2; offsets must ascend from 0");
  data.cuQ = {-1, 2, 3};
  EXPECT_EQ(message([](CallArguments &) {}),
            "array 'cu_q' begins with -1; offsets must ascend from 0");
  data.cuQ = {0, 2, 4};
  EXPECT_EQ(message([](CallArguments &) {}),
            "array 'cu_q' ends at 4; the array that it divides has 3 entries");
  data.cuQ = {0, 2, 3};
  data.keyLens[1] = -1;
  EXPECT_EQ(message([](CallArguments &) {}),
            "array 'kv_len' gives sequence 1 a length of -1; 0 to 2147483647 "
            "keys are there");
  data.keyLens[1] = 7;
  EXPECT_EQ(message([](CallArguments &a) { a.arrays.erase("cu_q"); }),
            "array 'q' has 3 query tokens for 2 sequences; without query "
            "offsets one for each "
            "is allowed");
}

// A13: one key more than the table's columns hold.
TEST_F(BindErrors, LengthsBeyondTheTable) {
  data.keyLens[0] = static_cast<int32_t>(data.columnsOrLength * 4);
  EXPECT_EQ(message([](CallArguments &) {}), "bound");
  ++data.keyLens[0];
  EXPECT_EQ(message([](CallArguments &) {}),
            "sequence 0 has 17 keys; its page table holds 4 pages of 4 keys; "
            "give it more "
            "columns or a shorter length");
  EXPECT_EQ(message([](CallArguments &a) { a.arrays["table"].strides[1] = 2; }),
            "array 'table' has stride 2 between pages; 1 is allowed; make it "
            "contiguous");
}

TEST_F(BindErrors, PageIdsWhenAsked) {
  BindOptions validate{.validatePages = true};
  auto nothing = [](CallArguments &) {};
  EXPECT_EQ(message(nothing, validate), "bound") << "-1 beyond the length is nobody's";
  int64_t pages = data.keyTokens / 4;
  data.table[1] = static_cast<int32_t>(pages);
  EXPECT_EQ(message(nothing), "bound") << "not asked";
  EXPECT_EQ(message(nothing, validate),
            fmt::format("array 'table' gives page 1 of sequence 0 the id {}; the pool has {} "
                        "pages, and a query may see this one",
                        pages, pages));
  data.table[1] = -1;
  EXPECT_NE(message(nothing, validate), "bound");
  // A window of 3 frees the pages before key 8 - 2 (A27).
  auto window = [](CallArguments &a) { a.scalars["window"] = int64_t{3}; };
  data.table[1] = 0;
  data.table[0] = -1;
  EXPECT_EQ(message(window, validate), "bound");
  data.table[0] = -2;
  EXPECT_NE(message(window, validate), "bound");
}

TEST(BindErrorsOfDenseKeys, LengthsBeyondTheKeys) {
  Spec spec{.kvForm = KvForm::Dense};
  Case data(spec, {1}, {10});
  std::shared_ptr<DeviceProgram> program = loadOrDie(makeProgram(spec));
  data.keyLens[0] = 14; // 13 are there
  EXPECT_EQ(BoundCall::bind(program, data.arguments()).status().message(),
            "array 'kv_len' gives sequence 0 a length of 14; 0 to 13 keys are there");
}

TEST(LoadErrors, ImagesForOtherMachines) {
  Program program = makeProgram(Spec());
  program.images[0].features = "+sse2,+avx512f,+magic";
  CpuInfo cpu;
  cpu.brand = "Test CPU";
  cpu.features = {"sse2"};
  StatusOr<CpuProgram> loaded = CpuProgram::load(program, cpu);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.status().toString(),
            "Unavailable: program 'scalar_attention': image 0 needs CPU "
            "features that this "
            "processor ('Test CPU') lacks: avx512f, magic; compile the spec "
            "for this machine");
  program = makeProgram(Spec());
  program.images[0].triple = "aarch64-linux-gnu";
  EXPECT_EQ(CpuProgram::load(program).status().code(), StatusCode::Unavailable);
}

TEST(LoadErrors, DamagedPrograms) {
  Program program = makeProgram(Spec());
  program.abiVersion = 0;
  EXPECT_EQ(CpuProgram::load(program).status().message(),
            "program 'scalar_attention' has ABI version 0; this runtime runs "
            "version 2; compile "
            "the spec again");
  program = makeProgram(Spec());
  program.kernels[0].entry = "absent";
  EXPECT_EQ(CpuProgram::load(program).status().code(), StatusCode::NotFound);
  program = makeProgram(Spec());
  program.images[0].bytes.resize(100);
  EXPECT_EQ(CpuProgram::load(program).status().code(), StatusCode::DataLoss);
  program = makeProgram(Spec());
  program.slots[0].buffer = 1000;
  EXPECT_EQ(CpuProgram::load(program).status().code(), StatusCode::InvalidArgument);
}

TEST(Bundle, ASavedProgramRunsAfterLoading) {
  Spec spec;
  StatusOr<Program> read = deserialize(serialize(makeProgram(spec)));
  ASSERT_TRUE(read) << read.status().toString();
  Case data(spec, {3, 1}, {11, 30});
  runOrDie(loadOrDie(*read), data.arguments(), {});
  data.expectRight();
}

TEST(Arguments, BiasBroadcastsByStrideZero) {
  Program program;
  program.facts.queryHeads = 4;
  program.facts.kvHeads = 1;
  program.buffers = {
      {"bias", BufferRole::Bias, ElementType::F32, false, false, {-1, 4, -1, -1}},
      {"mask", BufferRole::DenseMask, ElementType::I8, false, true, {-1, -1, -1, -1}}};
  float value = 0;
  CallArguments arguments;
  arguments.arrays["bias"] = ArrayRef::contiguous(&value, ElementType::F32, {1, 1, 5, 1});
  arguments.arrays["mask"] = ArrayRef::contiguous(&value, ElementType::Bool, {2, 1, 1, 3});
  StatusOr<BoundArrays> bound = matchArrays(program, arguments);
  ASSERT_TRUE(bound) << bound.status().toString();
  EXPECT_EQ((*bound)[0]->strides, (std::vector<int64_t>{0, 0, 1, 0}));
  EXPECT_EQ((*bound)[1]->strides, (std::vector<int64_t>{3, 0, 0, 1}));
}

TEST(Arguments, MasksMustReachAsFarAsTheBatch) {
  Spec spec{.kvForm = KvForm::Dense};
  Program program = makeProgram(spec);
  program.buffers.push_back(
      {"bias", BufferRole::Bias, ElementType::F32, false, true, {-1, -1, -1, -1}});
  std::shared_ptr<DeviceProgram> loaded = loadOrDie(program);
  Case data(spec, {4, 2}, {10, 12});
  float value = 0;
  auto bind = [&](std::vector<int64_t> shape) {
    CallArguments arguments = data.arguments();
    arguments.arrays["bias"] = ArrayRef::contiguous(&value, ElementType::F32, std::move(shape));
    return BoundCall::bind(loaded, arguments).status();
  };
  EXPECT_TRUE(bind({1, 1, 1, 1}).ok());
  EXPECT_TRUE(bind({2, 4, 4, 12}).ok());
  EXPECT_TRUE(bind({2, 1, 5, 15}).ok());
  EXPECT_EQ(bind({1, 1, 3, 12}).message(), "array 'bias' has extent 3 in dimension 2; the batch "
                                           "needs 4, or 1 to use it for all");
  EXPECT_FALSE(bind({1, 1, 4, 11}).ok());
  EXPECT_FALSE(bind({1, 3, 4, 12}).ok());
}

TEST(Arguments, PerHeadValuesGiveTheBoundsTheirExtremes) {
  Program program;
  program.facts.queryHeads = 3;
  program.facts.kvHeads = 1;
  program.buffers = {{"windows", BufferRole::PerHead, ElementType::I32, false, true, {3}},
                     {"slopes", BufferRole::PerHead, ElementType::F32, false, true, {3}}};
  program.scalars = {{"window", ScalarType::I64, 5, 0, 0}, {"slope", ScalarType::F32, 0, 0.5, 1}};
  int32_t windows[] = {7, -2, 30};
  float slopes[] = {0.25f, -1.5f, std::numeric_limits<float>::quiet_NaN()};
  CallArguments arguments;
  StatusOr<ScalarTable> defaults =
      resolveScalars(program, arguments, *matchArrays(program, arguments));
  ASSERT_TRUE(defaults);
  EXPECT_EQ(defaults->values.perHeadMin, (std::vector<int64_t>{5, 0}));
  EXPECT_EQ(defaults->values.perHeadMax, (std::vector<int64_t>{5, 1}));
  EXPECT_EQ(defaults->slots[1], 0x3f000000u) << "0.5f in the low four bytes";
  arguments.arrays["windows"] = ArrayRef::contiguous(windows, ElementType::I32, {3});
  arguments.arrays["slopes"] = ArrayRef::contiguous(slopes, ElementType::F32, {3});
  StatusOr<ScalarTable> given =
      resolveScalars(program, arguments, *matchArrays(program, arguments));
  ASSERT_TRUE(given);
  EXPECT_EQ(given->values.perHeadMin, (std::vector<int64_t>{-2, -2}));
  EXPECT_EQ(given->values.perHeadMax, (std::vector<int64_t>{30, 1}));
}

namespace {

/// What a program with this number alone makes of the numbers that are given.
StatusOr<ScalarTable> resolved(const Scalar &scalar, CallArguments arguments) {
  Program program;
  program.scalars = {scalar};
  return resolveScalars(program, arguments, *matchArrays(program, {}));
}

CallArguments giving(const char *name, ScalarValue value) {
  CallArguments arguments;
  arguments.scalars[name] = value;
  return arguments;
}

std::string refusalOf(const Scalar &scalar, CallArguments arguments) {
  return resolved(scalar, std::move(arguments)).status().message();
}

} // namespace

TEST(Arguments, ANumberWithoutDefaultMustBeGiven) {
  for (ScalarType type : {ScalarType::I64, ScalarType::F32, ScalarType::F64}) {
    Scalar scalar{.name = "arg0", .type = type, .required = true};
    EXPECT_EQ(refusalOf(scalar, {}),
              "scalar 'arg0' is missing; the spec has no value for it, so each call gives one");
    EXPECT_TRUE(resolved(scalar, giving("arg0", int64_t{0})));
    scalar.required = false;
    EXPECT_TRUE(resolved(scalar, {}));
  }
}

TEST(Arguments, NumbersStayWithinTheirTypes) {
  Scalar byte{.name = "user4", .type = ScalarType::I64, .least = -128, .most = 127};
  for (int64_t value : {-129, 128, 300})
    EXPECT_EQ(refusalOf(byte, giving("user4", value)),
              fmt::format("scalar 'user4' is {}; -128 to 127 are allowed", value));
  for (int64_t value : {-128, 0, 127})
    EXPECT_EQ(resolved(byte, giving("user4", value))->slots[0], uint64_t(value));
  Scalar whole{.name = "user4", .type = ScalarType::I64};
  EXPECT_EQ(refusalOf(whole, giving("user4", int64_t{1} << 31)),
            "scalar 'user4' is 2147483648; -2147483648 to 2147483647 are allowed");
}

TEST(Arguments, AnF64NumberKeepsItsBits) {
  Scalar real{.name = "user4", .type = ScalarType::F64, .floatDefault = 0.25};
  EXPECT_EQ(resolved(real, {})->slots[0], std::bit_cast<uint64_t>(0.25));
  StatusOr<ScalarTable> table = resolved(real, giving("user4", 0.1));
  EXPECT_EQ(table->slots[0], std::bit_cast<uint64_t>(0.1));
  EXPECT_EQ(table->values.perHeadMin[0], 0);
  EXPECT_EQ(table->values.perHeadMax[0], 1);
}
