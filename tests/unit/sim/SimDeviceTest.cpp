// The simulator behind the device interface.
#include "runtime/device/sim/SimDevice.h"

#include "tests/unit/sim/Support.h"

#include <fstream>
#include <unistd.h>

using namespace llmopt;
using namespace llmopt::runtime;

namespace {

// One block a worker, 32 threads: out[worker * 32 + t] = in[worker * 32 + t] + 1.
// Slots: pointers of in and out behind the header of 64 bytes.
const char *kPtx = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry increment(.param .align 8 .b8 block[80])
{
  .reg .b32 %r<8>;
  .reg .b64 %d<8>;
  ld.param.u64 %d0, [block+64];
  ld.param.u64 %d1, [block+72];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %tid.x;
  mad.lo.u32 %r2, %r0, 32, %r1;
  mul.wide.u32 %d2, %r2, 4;
  add.u64 %d0, %d0, %d2;
  add.u64 %d1, %d1, %d2;
  ld.global.u32 %r3, [%d0];
  add.u32 %r3, %r3, 1;
  st.global.u32 [%d1], %r3;
  ret;
})";

bundle::Program makeProgram(const std::string &arch = "compute_80") {
  bundle::Program program;
  program.name = "increment";
  program.target = "cuda:sm_80";
  program.buffers = {
      {"in", bundle::BufferRole::NewKey, bundle::ElementType::I32, false, false, {-1}},
      {"out", bundle::BufferRole::KeyPool, bundle::ElementType::I32, true, false, {-1}}};
  program.slots = {{bundle::SlotKind::Pointer, 0}, {bundle::SlotKind::Pointer, 1}};
  bundle::Kernel kernel{"increment", bundle::KernelKind::Append};
  kernel.blockThreads = 32;
  program.kernels = {kernel};
  bundle::Image image;
  image.cpu = arch;
  image.format = bundle::ImageFormat::Ptx;
  image.bytes.assign(kPtx, kPtx + std::strlen(kPtx));
  program.images = {image};
  return program;
}

struct Loaded {
  std::shared_ptr<SimDevice> device = SimDevice::create();
  std::shared_ptr<DeviceProgram> program = *device->load(makeProgram());
  std::unique_ptr<Stream> stream = *device->createStream();
  DeviceMemory in = *device->allocate(64 * 4), out = *device->allocate(64 * 4);

  std::vector<uint8_t> block() const {
    std::vector<uint8_t> bytes(80);
    const void *pointers[2] = {in.data(), out.data()};
    std::memcpy(&bytes[64], pointers, 16);
    return bytes;
  }
};

} // namespace

TEST(SimDevice, RunsKernelsAndReplaysGraphs) {
  Loaded s;
  EXPECT_EQ(s.program->imageChoice(), "increment: PTX for compute_80");
  EXPECT_FALSE(s.device->facts().hostMemory);
  std::vector<uint32_t> data(64), result(64);
  for (uint32_t i = 0; i < 64; ++i)
    data[i] = i;
  ASSERT_TRUE(s.stream->copyIn(s.in.data(), data.data(), 256).ok());
  std::vector<uint8_t> block = s.block();
  KernelCall call{0, block};
  Status status = s.stream->launch(*s.program, {&call, 1}, 2);
  ASSERT_TRUE(status.ok()) << status.toString();
  ASSERT_TRUE(s.stream->copyOut(result.data(), s.out.data(), 256).ok());
  for (uint32_t i = 0; i < 64; ++i)
    EXPECT_EQ(result[i], i + 1);
  EXPECT_EQ(s.device->takeCounters().at("increment").globalLoadBytes, 256u);
  EXPECT_TRUE(s.device->takeCounters().empty());

  ASSERT_TRUE(s.stream->beginCapture().ok());
  ASSERT_TRUE(s.stream->launch(*s.program, {&call, 1}, 2).ok());
  ASSERT_TRUE(s.stream->copyWithin(s.in.data(), s.out.data(), 256).ok());
  StatusOr<std::unique_ptr<Graph>> graph = s.stream->endCapture();
  ASSERT_TRUE(graph.ok());
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(s.stream->replay(**graph).ok());
  ASSERT_TRUE(s.stream->copyOut(result.data(), s.out.data(), 256).ok());
  EXPECT_EQ(result[5], 8u);
}

TEST(SimDevice, AKernelOutsideItsArraysIsStopped) {
  Loaded s;
  std::vector<uint8_t> block = s.block();
  KernelCall call{0, block};
  Status status = s.stream->launch(*s.program, {&call, 1}, 3);
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(status.message().starts_with("program 'increment': global-out-of-bounds in kernel "
                                           "'increment', block (2, 0, 0), warp 0, lane 0"))
      << status.message();
  ASSERT_TRUE(s.device->lastFault().has_value());
  EXPECT_EQ(s.device->lastFault()->buffer, "0 bytes after the end of 'in' (256 bytes)");

  // Arrays change places: what kernels only read must not be written.
  std::memcpy(&block[72], &block[64], 8);
  status = s.stream->launch(*s.program, {&call, 1}, 1);
  EXPECT_TRUE(status.ok()) << "an allocation that also holds an output may be written";
  DeviceMemory other = *s.device->allocate(256);
  const void *strange = other.data();
  block = s.block();
  std::vector<uint8_t> freed = block;
  {
    DeviceMemory gone = *s.device->allocate(256);
    strange = gone.data();
    std::memcpy(&freed[64], &strange, 8);
  }
  KernelCall stale{0, freed};
  status = s.stream->launch(*s.program, {&stale, 1}, 1);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(s.device->lastFault()->buffer, "0 bytes after the end of 'in' (0 bytes)");
  std::memset(&freed[64], 0, 8); // an array without elements has no address
  EXPECT_FALSE(s.stream->launch(*s.program, {&stale, 1}, 1).ok());
  EXPECT_EQ(s.device->lastFault()->buffer, "0 bytes after the end of 'in' (0 bytes)");
}

TEST(SimDevice, RefusesWhatItCannotRun) {
  auto failure = [](bundle::Program program, std::optional<CudaArch> chip = {}) {
    return SimDevice::create(chip)->load(std::move(program)).status().toString();
  };
  EXPECT_EQ(
      failure(makeProgram("compute_90"), *CudaArch::parse("sm_80")),
      "Unavailable: program 'increment': kernel 'increment' has no PTX that the simulator can "
      "run; PTX for compute_90 does not run on sm_80; it runs PTX only");
  bundle::Program cpu = makeProgram();
  cpu.target = "cpu";
  EXPECT_EQ(failure(cpu),
            "Unavailable: program 'increment': it was compiled for 'cpu'; the simulator "
            "runs CUDA programs");
  bundle::Program broken = makeProgram();
  broken.kernels[0].entry = "other";
  EXPECT_EQ(failure(broken),
            "DataLoss: program 'increment': the PTX for compute_80 has no kernel 'other'");
}

namespace {

/// Bytes of this process in memory; 0 where the system does not tell.
size_t residentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * size_t(sysconf(_SC_PAGESIZE));
}

} // namespace

TEST(SimDevice, LargeMemoryIsUnwrittenAndTakesNone) {
  Loaded s;
  constexpr size_t kBytes = (size_t{5} << 30) + 12345;
  size_t before = residentBytes();
  StatusOr<DeviceMemory> large = s.device->allocate(kBytes);
  if (!large)
    GTEST_SKIP() << large.status().message();
  const uint32_t written = 7;
  uint32_t read[2] = {};
  uint8_t *far = large->data() + (size_t{1} << 32) + 64;
  ASSERT_TRUE(s.stream->copyIn(far, &written, sizeof(written)).ok());
  ASSERT_TRUE(s.stream->copyOut(read, far, sizeof(read)).ok());
  EXPECT_EQ(read[0], 7u);
  EXPECT_EQ(read[1], 0xffffffffu);
  for (size_t at : {size_t{0}, size_t{1} << 20, size_t{1} << 32, kBytes - 1})
    EXPECT_EQ(large->data()[at], 0xff) << at;
  EXPECT_LT(residentBytes(), before + (size_t{100} << 20));
  // Copied where it was written, and nowhere else.
  EXPECT_EQ(far[-(16 << 20)], 0xff);
  // A kernel may use it to its end.
  s.in = *std::move(large);
  std::memcpy(s.in.data(), &written, sizeof(written));
  std::vector<uint8_t> block = s.block();
  KernelCall call{0, block};
  ASSERT_TRUE(s.stream->launch(*s.program, {&call, 1}, 1).ok());
  ASSERT_TRUE(s.stream->copyOut(read, s.out.data(), sizeof(read)).ok());
  EXPECT_EQ(read[0], 8u);
  EXPECT_EQ(read[1], 0u); // of unwritten bits the sum with 1
}

TEST(SimDevice, WhatNoAddressSpaceHoldsIsRefused) {
  StatusOr<DeviceMemory> memory = SimDevice::create()->allocate(size_t{1} << 60);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.status().code(), StatusCode::ResourceExhausted);
  EXPECT_TRUE(memory.status().message().find("no 1152921504606846976 bytes of address space") !=
              std::string::npos)
      << memory.status().message();
}

namespace {

/// The increment, of plan arrays in one allocation: the numbers of in are items, those of out
/// partials.
bundle::Program makePlanned() {
  bundle::Program program = makeProgram();
  program.buffers[0] = {
      "plan.items", bundle::BufferRole::Items, bundle::ElementType::I32, false, false, {-1}};
  program.buffers[1] = {"plan.partial_out",
                        bundle::BufferRole::PartialOut,
                        bundle::ElementType::I32,
                        false,
                        false,
                        {-1}};
  return program;
}

} // namespace

TEST(SimDevice, TellsTheArraysOfAPlanApart) {
  Loaded s;
  s.program = *s.device->load(makePlanned());
  std::vector<uint32_t> zeros(64);
  ASSERT_TRUE(s.stream->copyIn(s.in.data(), zeros.data(), 256).ok());
  auto launch = [&](size_t inAt, size_t outAt) {
    std::vector<uint8_t> bytes(80);
    const void *pointers[2] = {s.in.data() + inAt, s.in.data() + outAt};
    std::memcpy(&bytes[64], pointers, 16);
    KernelCall call{0, bytes};
    return s.stream->launch(*s.program, {&call, 1}, 1);
  };
  s.device->startProfiling();
  ASSERT_TRUE(launch(0, 128).ok());
  auto profiles = s.device->takeProfiles();
  const std::vector<sim::BufferProfile> &buffers = profiles.at("increment").buffers;
  ASSERT_EQ(buffers.size(), 2u);
  EXPECT_EQ(buffers[0].name, "plan.items");
  EXPECT_EQ(buffers[0].loadBytes, 128u);
  EXPECT_EQ(buffers[1].name, "plan.partial_out");
  EXPECT_EQ(buffers[1].storeBytes, 128u);
  // Partials end where the items begin, which no kernel writes.
  Status status = launch(64, 0);
  EXPECT_NE(status.message().find("write-to-read-only"), std::string::npos) << status.message();
  ASSERT_TRUE(s.device->lastFault());
  EXPECT_EQ(s.device->lastFault()->buffer, "byte 0 of 'plan.items' (192 bytes)");
}
