#include "runtime/device/cpu/CpuDevice.h"

#include <cstring>
#include <gtest/gtest.h>

using namespace llmopt::runtime;

namespace {

struct CpuDeviceTest : testing::Test {
  std::shared_ptr<CpuDevice> device = *CpuDevice::create(2);
  std::unique_ptr<Stream> stream = *device->createStream();
};

} // namespace

TEST_F(CpuDeviceTest, FactsNameTheHost) {
  EXPECT_EQ(toString(device->facts().kind), "cpu");
  EXPECT_EQ(device->facts().arch, "x86_64");
  EXPECT_EQ(device->facts().units, 2u);
  EXPECT_TRUE(device->facts().hostMemory);
  EXPECT_FALSE(device->facts().name.empty());
}

TEST_F(CpuDeviceTest, MemoryIsAlignedAndMoves) {
  for (size_t bytes : {1, 255, 256, 4097}) {
    DeviceMemory memory = *device->allocate(bytes);
    EXPECT_EQ(memory.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % DeviceMemory::kAlignment, 0u);
    DeviceMemory moved = std::move(memory);
    EXPECT_EQ(memory.data(), nullptr);
    EXPECT_NE(moved.data(), nullptr);
  }
  EXPECT_EQ(device->allocate(0)->data(), nullptr);
}

TEST_F(CpuDeviceTest, TooMuchMemoryIsAStatus) {
  StatusOr<DeviceMemory> memory = device->allocate(size_t{1} << 60);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.status().code(), StatusCode::ResourceExhausted);
  EXPECT_NE(memory.status().message().find("no memory for 1152921504606846976 bytes"),
            std::string::npos);
}

TEST_F(CpuDeviceTest, CopiesAndFills) {
  DeviceMemory a = *device->allocate(8), b = *device->allocate(8);
  ASSERT_TRUE(stream->copyIn(a.data(), "abcdefg", 8).ok());
  ASSERT_TRUE(stream->copyWithin(b.data(), a.data(), 8).ok());
  ASSERT_TRUE(stream->fill(b.data() + 2, 'x', 2).ok());
  char out[8];
  ASSERT_TRUE(stream->copyOut(out, b.data(), 8).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_STREQ(out, "abxxefg");
}

TEST_F(CpuDeviceTest, CapturedWorkRunsWhenItIsReplayed) {
  DeviceMemory a = *device->allocate(4);
  char in[4] = "one", out[4] = "";
  ASSERT_TRUE(stream->beginCapture().ok());
  ASSERT_TRUE(stream->copyIn(a.data(), in, 4).ok());
  ASSERT_TRUE(stream->fill(a.data(), 'g', 1).ok());
  ASSERT_TRUE(stream->copyOut(out, a.data(), 4).ok());
  EXPECT_FALSE(stream->synchronize().ok()) << "not while capturing";
  std::unique_ptr<Graph> graph = *stream->endCapture();
  EXPECT_STREQ(out, "") << "nothing has run";
  ASSERT_TRUE(stream->replay(*graph).ok());
  EXPECT_STREQ(out, "gne");
  std::strcpy(in, "two");
  ASSERT_TRUE((*device->createStream())->replay(*graph).ok());
  EXPECT_STREQ(out, "gwo") << "contents are those of the replay";
}

TEST_F(CpuDeviceTest, CaptureMistakesAreNamed) {
  EXPECT_EQ(stream->endCapture().status().message(),
            "the stream is not capturing; begin a capture first");
  ASSERT_TRUE(stream->beginCapture().ok());
  EXPECT_EQ(stream->beginCapture().message(), "the stream is capturing already");
}

TEST_F(CpuDeviceTest, EventsMeasureTime) {
  std::unique_ptr<Event> first = *stream->record(), second = *stream->record();
  ASSERT_TRUE(stream->wait(*first).ok());
  ASSERT_TRUE(second->synchronize().ok());
  EXPECT_GE(*second->secondsSince(*first), 0);
  EXPECT_LE(*first->secondsSince(*second), 0);
}

TEST_F(CpuDeviceTest, HasNoNativeStreams) {
  EXPECT_EQ(device->useStream(nullptr).status().code(), StatusCode::Unsupported);
}
