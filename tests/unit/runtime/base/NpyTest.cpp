#include "runtime/base/Npy.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <numeric>
#include <unistd.h>

using namespace llmopt::runtime;

namespace {

std::vector<uint8_t> makeFile(const std::string &header, size_t dataBytes, uint8_t major = 1) {
  std::vector<uint8_t> file = {0x93, 'N', 'U', 'M', 'P', 'Y', major, 0};
  uint32_t length = static_cast<uint32_t>(header.size());
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i)
    file.push_back(static_cast<uint8_t>(length >> 8 * i));
  file.insert(file.end(), header.begin(), header.end());
  for (size_t i = 0; i < dataBytes; ++i)
    file.push_back(static_cast<uint8_t>(i));
  return file;
}

std::string headerOf(const std::string &descr, const std::string &shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

StatusOr<NpyArray> decode(const std::string &header, size_t dataBytes) {
  return decodeNpy(makeFile(header, dataBytes), "x.npy");
}

} // namespace

TEST(Npy, RoundTripsEveryTypeAndShape) {
  for (int t = 0; t <= static_cast<int>(NpyType::Bool); ++t)
    for (const std::vector<int64_t> &shape :
         {std::vector<int64_t>{}, {5}, {2, 3}, {1, 0, 4}, {2, 1, 3, 1, 2}}) {
      NpyArray array{static_cast<NpyType>(t), shape, {}};
      array.bytes.resize(*elementCount(shape) * bytesOf(array.type));
      std::iota(array.bytes.begin(), array.bytes.end(), uint8_t{1});
      StatusOr<std::vector<uint8_t>> file = encodeNpy(array, "x.npy");
      ASSERT_TRUE(file) << file.status().toString();
      EXPECT_EQ((file->size() - array.bytes.size()) % 64, 0u) << "data is aligned";
      StatusOr<NpyArray> read = decodeNpy(*file, "x.npy");
      ASSERT_TRUE(read) << read.status().toString();
      EXPECT_EQ(*read, array);
    }
}

TEST(Npy, WritesWhatNumpyWrites) {
  NpyArray array{NpyType::F32, {3, 4}, std::vector<uint8_t>(48)};
  std::vector<uint8_t> file = *encodeNpy(array, "x.npy");
  std::string text(file.begin() + 10, file.begin() + 128);
  std::string expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
  EXPECT_EQ(text.substr(0, expected.size()), expected);
  EXPECT_EQ(text.back(), '\n');
  array.shape = {12};
  file = *encodeNpy(array, "x.npy");
  text.assign(file.begin(), file.begin() + 128);
  EXPECT_NE(text.find("'shape': (12,), }"), std::string::npos);
}

TEST(Npy, ReadsTheFormsThatOthersWrite) {
  EXPECT_EQ(decode(headerOf("<V2", "(2,)"), 4)->type, NpyType::BF16);
  EXPECT_EQ(decode(headerOf("|V2", "(2,)"), 4)->type, NpyType::BF16);
  EXPECT_EQ(decode(headerOf("|b1", "(2,)"), 2)->type, NpyType::Bool);
  EXPECT_EQ(decode(headerOf("<i1", "(2,)"), 2)->type, NpyType::I8);
  EXPECT_EQ(decode("{\"shape\":(2,1),\"fortran_order\":False,\"descr\":\"<f4\"}", 8)->shape,
            (std::vector<int64_t>{2, 1}));
  StatusOr<NpyArray> second = decodeNpy(makeFile(headerOf("<i8", "(1, 2)"), 16, 2), "x.npy");
  ASSERT_TRUE(second) << second.status().toString();
  EXPECT_EQ(second->type, NpyType::I64);
  EXPECT_TRUE(decode("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", 8))
      << "one dimension has one order";
}

TEST(Npy, ErrorsNameFileAndReason) {
  EXPECT_EQ(decodeNpy({}, "a.npy").status().message(), "file 'a.npy' is not a .npy file");
  EXPECT_EQ(decode(headerOf("<c8", "(2,)"), 16).status().message(),
            "file 'x.npy' has elements of type '<c8'; allowed are "
            "little-endian f2, f4, f8, "
            "i1, i4, i8, u1, u4, b1 and V2 (bf16)");
  EXPECT_EQ(decode(headerOf(">f4", "(2,)"), 8).status().code(), StatusCode::Unsupported);
  EXPECT_EQ(
      decode("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", 8).status().message(),
      "file 'x.npy' is in Fortran order; C order is allowed; save "
      "numpy.ascontiguousarray of it");
  EXPECT_EQ(decode(headerOf("<f4", "(3,)"), 8).status().message(),
            "file 'x.npy' holds 8 bytes of data; its header asks for 3 "
            "elements of 4 bytes");
  EXPECT_FALSE(decode(headerOf("<f4", "(2,)"), 9)) << "trailing bytes";
  EXPECT_EQ(decodeNpy(makeFile(headerOf("<f4", "(2,)"), 8, 3), "x.npy").status().code(),
            StatusCode::Unsupported);
}

TEST(Npy, SizesThatOverflowAreRefused) {
  EXPECT_FALSE(decode(headerOf("<f4", "(4294967296, 4294967296)"), 0));
  EXPECT_FALSE(decode(headerOf("<f4", "(99999999999999999999,)"), 0));
  EXPECT_FALSE(decode(headerOf("<f4", "(-1,)"), 0));
  EXPECT_FALSE(decode(headerOf("<f8", "(2305843009213693952,)"), 0)) << "2^61 * 8 = 2^64";
  EXPECT_TRUE(decode(headerOf("<f4", "(4294967296, 4294967296, 0)"), 0));
  std::string deep = "(";
  for (int i = 0; i < 65; ++i)
    deep += "1, ";
  EXPECT_FALSE(decode(headerOf("<f4", deep + ")"), 4));
}

TEST(Npy, DamagedHeadersAreRefused) {
  for (const char *header : {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'shape': (1,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}",
                             "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} tail",
                             "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}"}) {
    StatusOr<NpyArray> read = decode(header, 4);
    ASSERT_FALSE(read) << header;
    EXPECT_EQ(read.status().code(), StatusCode::DataLoss) << header;
  }
}

TEST(Npy, FlippedAndMissingBytesNeverCrash) {
  const std::vector<uint8_t> file = makeFile(headerOf("<f4", "(2, 3)"), 24);
  for (size_t i = 0; i < file.size(); ++i) {
    EXPECT_FALSE(decodeNpy(std::span(file).first(i), "x.npy"));
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<uint8_t> changed = file;
      changed[i] ^= static_cast<uint8_t>(1 << bit);
      StatusOr<NpyArray> read = decodeNpy(changed, "x.npy");
      if (read) {
        EXPECT_EQ(*elementCount(read->shape) * bytesOf(read->type),
                  static_cast<int64_t>(read->bytes.size()));
      }
    }
  }
}

TEST(Npy, FilesRoundTripAndErrorsNameThem) {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("llmopt-npy-" + std::to_string(::getpid()) + ".npy"))
                         .string();
  NpyArray array{NpyType::I32, {2}, std::vector<uint8_t>(8, 3)};
  ASSERT_TRUE(writeNpy(array, path).ok());
  EXPECT_EQ(*readNpy(path), array);
  std::filesystem::remove(path);
  EXPECT_EQ(readNpy(path).status().message(),
            "file '" + path + "': cannot open: No such file or directory");
  array.bytes.pop_back();
  EXPECT_EQ(writeNpy(array, path).code(), StatusCode::InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path));
}
