// Driver, memory, streams, events: what is called, and what is said when it fails.
#include "Support.h"

#include <cstring>

using namespace cudatest;

namespace {

std::string openFailure() { return openDevice("cuda").status().toString(); }

} // namespace

TEST_F(CudaTest, FactsComeFromTheDriver) {
  std::shared_ptr<CudaDevice> device = open();
  EXPECT_EQ(device->facts().name, "Fake GPU");
  EXPECT_EQ(device->facts().arch, "sm_80");
  EXPECT_EQ(device->facts().driver, "CUDA 13.0");
  EXPECT_EQ(device->facts().units, 4u);
  EXPECT_FALSE(device->facts().hostMemory);
}

TEST_F(CudaTest, NoDriver) { // A14
  ::setenv("LLMOPT_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  EXPECT_EQ(
      openFailure(),
      "Unavailable: no CUDA driver: /nowhere/libcuda.so.1 not found; install NVIDIA's driver, "
      "or name its library with LLMOPT_CUDA_LIBRARY; tried /nowhere/libcuda.so.1 (cannot "
      "open shared object file: No such file or directory)");
  StatusOr<std::shared_ptr<Device>> any = openDevice("auto");
  ASSERT_TRUE(any);
  EXPECT_EQ((*any)->facts().kind, DeviceKind::Cpu);
}

TEST_F(CudaTest, AnotherLibraryIsNotTakenForADriver) {
  ::setenv("LLMOPT_CUDA_LIBRARY", "libm.so.6", 1);
  EXPECT_NE(openFailure().find("libm.so.6' lacks cuGetErrorName, cuGetErrorString, cuInit"),
            std::string::npos)
      << openFailure();
}

TEST_F(CudaTest, DriversThatDoNotWorkAreNamed) {
  fake.fail("cuInit", 34, 0);
  EXPECT_EQ(openFailure(), "Unavailable: no CUDA driver: '" FAKE_CUDA
                           "' is the toolkit's, for linking only; install NVIDIA's driver");
  fake.fail("cuInit", 803, 0);
  EXPECT_EQ(openFailure(), "Unavailable: no CUDA driver: cuInit failed: system has unsupported "
                           "display driver / cuda driver combination "
                           "(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)");
  fake.set("version", 11080);
  EXPECT_EQ(openFailure(), "Unavailable: the CUDA driver '" FAKE_CUDA
                           "' supports CUDA 11.8; 12.0 or later is needed; update it");
  fake.set("version", 13000);
  fake.set("devices", 0);
  EXPECT_EQ(openFailure(), "Unavailable: no CUDA device: the driver '" FAKE_CUDA "' finds none");
}

TEST_F(CudaTest, DevicesByName) {
  EXPECT_EQ((*openDevice("auto"))->facts().kind, DeviceKind::Cuda);
  EXPECT_EQ((*openDevice("cuda:0"))->facts().name, "Fake GPU");
  EXPECT_EQ((*openDevice("cpu"))->facts().kind, DeviceKind::Cpu);
  EXPECT_EQ(openDevice("cuda:1").status().message(),
            "there is no CUDA device 1; there are 1, from 0");
  for (const char *name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1"})
    EXPECT_EQ(openDevice(name).status().message(),
              fmt::format("unknown device '{}'; auto, cpu, cuda, cuda:NUMBER, sim and sim:ARCH can "
                          "be had",
                          name));
}

TEST_F(CudaTest, MemoryComesFromAPoolOfItsOwn) {
  {
    std::shared_ptr<CudaDevice> device = open();
    DeviceMemory memory = *device->allocate(1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % DeviceMemory::kAlignment, 0u);
    EXPECT_EQ(device->allocate(0)->data(), nullptr);
  }
  EXPECT_EQ(fake.calls({"cuMemPoolCreate", "cuMemPoolSetAttribute", "cuMemAllocFromPoolAsync",
                        "cuMemFreeAsync", "cuMemPoolDestroy", "cuMemAlloc"}),
            (std::vector<std::string>{
                "cuMemPoolCreate type 1 location 1", "cuMemPoolSetAttribute 4 ffffffffffffffff",
                "cuMemAllocFromPoolAsync 1000", "cuMemFreeAsync", "cuMemPoolDestroy"}));
}

TEST_F(CudaTest, WithoutPoolsMemoryIsAllocatedPlainly) {
  fake.set("pools", 0);
  {
    DeviceMemory memory = *open()->allocate(1000);
  }
  EXPECT_EQ(fake.calls({"cuMemAlloc", "cuMemFree"}),
            (std::vector<std::string>{"cuMemAlloc 1000", "cuMemFree"}));
}

TEST_F(CudaTest, OutOfMemorySaysHowMuchWasWanted) {
  std::shared_ptr<CudaDevice> device = open();
  EXPECT_EQ(device->allocate(size_t{1} << 40).status().toString(),
            "ResourceExhausted: no memory for 1099511627776 bytes on device 'Fake GPU': "
            "cuMemAllocFromPoolAsync failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
  EXPECT_TRUE(device->allocate(16)) << "smaller requests still work";
}

TEST_F(CudaTest, CopiesRunInOrderWhenTheStreamIsSynchronised) {
  std::shared_ptr<CudaDevice> device = open();
  std::unique_ptr<Stream> stream = *device->createStream();
  DeviceMemory a = *device->allocate(8), b = *device->allocate(8);
  char out[8] = "";
  ASSERT_TRUE(stream->copyIn(a.data(), "abcdefg", 8).ok());
  ASSERT_TRUE(stream->copyWithin(b.data(), a.data(), 8).ok());
  ASSERT_TRUE(stream->fill(b.data() + 2, 'x', 2).ok());
  ASSERT_TRUE(stream->copyOut(out, b.data(), 8).ok());
  ASSERT_TRUE(stream->copyIn(nullptr, nullptr, 0).ok()) << "nothing to do";
  EXPECT_STREQ(out, "") << "the fake runs late";
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_STREQ(out, "abxxefg");
}

TEST_F(CudaTest, EventsOrderStreams) {
  std::shared_ptr<CudaDevice> device = open();
  std::unique_ptr<Stream> first = *device->createStream(), second = *device->createStream();
  DeviceMemory a = *device->allocate(4);
  char out[4] = "";
  ASSERT_TRUE(first->copyIn(a.data(), "one", 4).ok());
  std::unique_ptr<Event> copied = *first->record();
  ASSERT_TRUE(first->fill(a.data(), 'z', 3).ok()) << "after the event";
  ASSERT_TRUE(second->wait(*copied).ok());
  ASSERT_TRUE(second->copyOut(out, a.data(), 4).ok());
  ASSERT_TRUE(second->synchronize().ok());
  EXPECT_STREQ(out, "one");
  ASSERT_TRUE(copied->synchronize().ok());
  std::unique_ptr<Event> later = *first->record();
  EXPECT_FALSE(later->secondsSince(*copied)) << "it has not been reached";
  ASSERT_TRUE(later->synchronize().ok());
  EXPECT_GE(*later->secondsSince(*copied), 0);
}

TEST_F(CudaTest, TheCallersStreamStaysTheCallers) {
  std::shared_ptr<CudaDevice> device = open();
  void *native = nullptr; // the process's default stream
  {
    ASSERT_TRUE((*device->useStream(native))->synchronize().ok());
  }
  EXPECT_EQ(fake.calls({"cuStreamDestroy"}).size(), 0u);
}

TEST_F(CudaTest, ALostDeviceSaysWhatToDo) {
  std::shared_ptr<CudaDevice> device = open();
  std::unique_ptr<Stream> stream = *device->createStream();
  fake.fail("cuStreamSynchronize", 719, 0);
  EXPECT_EQ(stream->synchronize().toString(),
            "Internal: cuStreamSynchronize failed: unspecified launch failure "
            "(CUDA_ERROR_LAUNCH_FAILED); it or work before it has failed, and the device is lost "
            "to this process; start the "
            "process anew");
}

TEST_F(CudaTest, AFailureWhileOpeningGivesEverythingBack) {
  for (const char *call :
       {"cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceTotalMem", "cuDevicePrimaryCtxRetain",
        "cuMemPoolCreate", "cuMemPoolSetAttribute", "cuStreamCreate"}) {
    fake.reset();
    fake.fail(call, 999, 0);
    StatusOr<std::shared_ptr<Device>> device = openDevice("cuda");
    ASSERT_FALSE(device) << call;
    EXPECT_NE(device.status().message().find(call), std::string::npos) << device.status().message();
    EXPECT_EQ(fake.live(), 0) << call;
  }
}
