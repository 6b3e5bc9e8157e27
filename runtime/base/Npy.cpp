#include "runtime/base/Npy.h"

#include "runtime/base/File.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <optional>

namespace llmopt::runtime {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
/// Far above any header of a plain array; NumPy itself warns from 10,000 on.
constexpr uint32_t kMaxHeaderBytes = 1 << 20;
/// Data starts at a multiple of this.
constexpr size_t kAlignment = 64;

struct TypeName {
  NpyType type;
  std::string_view descr; ///< as written; a leading byte order may differ when read
  std::string_view name;
  uint32_t bytes;
};

constexpr TypeName kTypes[] = {
    {NpyType::F16, "<f2", "f16", 2}, {NpyType::F32, "<f4", "f32", 4},
    {NpyType::F64, "<f8", "f64", 8}, {NpyType::BF16, "<V2", "bf16", 2},
    {NpyType::I8, "|i1", "i8", 1},   {NpyType::I32, "<i4", "i32", 4},
    {NpyType::I64, "<i8", "i64", 8}, {NpyType::U8, "|u1", "u8", 1},
    {NpyType::U32, "<u4", "u32", 4}, {NpyType::Bool, "|b1", "bool", 1},
};

const TypeName &entryOf(NpyType type) { return kTypes[static_cast<size_t>(type)]; }

/// The type of a descr such as "<f4" or "|V2".
std::optional<NpyType> typeOf(std::string_view descr) {
  if (descr.size() != 3)
    return std::nullopt;
  for (const TypeName &entry : kTypes) {
    if (descr.substr(1) != entry.descr.substr(1))
      continue;
    // Byte order means nothing for single bytes and raw items.
    bool anyOrder = entry.bytes == 1 || entry.type == NpyType::BF16;
    char order = descr[0];
    if (order == '<' || order == '=' || (anyOrder && (order == '|' || order == '>')))
      return entry.type;
  }
  return std::nullopt;
}

/// Reads the header's Python dictionary. Each function returns false where the
/// text is not what it expects.
class HeaderParser {
public:
  explicit HeaderParser(std::string_view text) : text(text) {}

  bool parse() {
    if (!take('{'))
      return false;
    while (!take('}')) {
      if (!parseEntry())
        return false;
      if (!take(',') && peek() != '}')
        return false;
    }
    skipSpace();
    return text.empty() && hasDescr && hasOrder && hasShape;
  }

  std::string_view descr;
  bool fortranOrder = false;
  std::vector<int64_t> shape;

private:
  bool parseEntry() {
    std::string_view key;
    if (!parseString(key) || !take(':'))
      return false;
    if (key == "descr")
      return hasDescr = parseString(descr);
    if (key == "fortran_order")
      return hasOrder = parseBool();
    if (key == "shape")
      return hasShape = parseShape();
    return false;
  }

  bool parseString(std::string_view &value) {
    skipSpace();
    if (text.empty() || (text[0] != '\'' && text[0] != '"'))
      return false;
    size_t end = text.find(text[0], 1);
    if (end == std::string_view::npos)
      return false;
    value = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    return true;
  }

  bool parseBool() {
    skipSpace();
    for (std::string_view word : {"True", "False"})
      if (text.starts_with(word)) {
        fortranOrder = word == "True";
        text.remove_prefix(word.size());
        return true;
      }
    return false;
  }

  bool parseShape() {
    shape.clear();
    if (!take('('))
      return false;
    while (!take(')')) {
      int64_t extent;
      skipSpace();
      auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
      if (error != std::errc() || shape.size() == kMaxNpyRank)
        return false;
      text.remove_prefix(static_cast<size_t>(stop - text.data()));
      shape.push_back(extent);
      if (!take(',') && peek() != ')')
        return false;
    }
    return true;
  }

  void skipSpace() {
    size_t space = text.find_first_not_of(" \t\n\r");
    text.remove_prefix(std::min(space, text.size()));
  }
  char peek() {
    skipSpace();
    return text.empty() ? '\0' : text[0];
  }
  bool take(char c) {
    if (peek() != c)
      return false;
    text.remove_prefix(1);
    return true;
  }

  std::string_view text;
  bool hasDescr = false, hasOrder = false, hasShape = false;
};

/// Header text and where the data starts.
struct Preamble {
  std::string_view header;
  size_t dataAt;
};

StatusOr<Preamble> readPreamble(std::span<const uint8_t> file, std::string_view name) {
  std::string_view text(reinterpret_cast<const char *>(file.data()), file.size());
  if (!text.starts_with(kMagic) || text.size() < 10)
    return dataLoss("file '{}' is not a .npy file", name);
  uint8_t major = file[6];
  if (major != 1 && major != 2)
    return makeStatus(StatusCode::Unsupported,
                      "file '{}' has .npy version {}.{}; 1.0 and 2.0 are allowed; save "
                      "it again with numpy.save",
                      name, major, file[7]);
  size_t lengthBytes = major == 1 ? 2 : 4;
  uint32_t length = 0;
  if (text.size() < 8 + lengthBytes)
    return dataLoss("file '{}' ends inside its header", name);
  std::memcpy(&length, file.data() + 8, lengthBytes);
  size_t headerAt = 8 + lengthBytes;
  if (length > kMaxHeaderBytes)
    return dataLoss("file '{}' has a header of {} bytes; at most {} are allowed", name, length,
                    kMaxHeaderBytes);
  if (length > text.size() - headerAt)
    return dataLoss("file '{}' ends inside its header", name);
  return Preamble{text.substr(headerAt, length), headerAt + length};
}

std::string headerText(const NpyArray &array) {
  std::string shape;
  for (int64_t extent : array.shape)
    shape += std::to_string(extent) + ", ";
  // Python writes (3,) and (3, 4).
  if (array.shape.size() == 1)
    shape.pop_back();
  else if (!shape.empty())
    shape.resize(shape.size() - 2);
  return fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                     entryOf(array.type).descr, shape);
}

} // namespace

std::string_view toString(NpyType type) { return entryOf(type).name; }
uint32_t bytesOf(NpyType type) { return entryOf(type).bytes; }

StatusOr<int64_t> elementCount(std::span<const int64_t> shape) {
  int64_t count = 1;
  bool empty = false, overflow = false;
  for (int64_t extent : shape) {
    if (extent < 0)
      return invalidArgument("shape has extent {}; sizes from 0 are allowed", extent);
    empty |= extent == 0;
    overflow |= __builtin_mul_overflow(count, extent ? extent : 1, &count);
  }
  if (empty)
    return int64_t{0};
  if (overflow)
    return invalidArgument("shape has more elements than 64 bits count");
  return count;
}

StatusOr<NpyArray> decodeNpy(std::span<const uint8_t> file, std::string_view name) {
  StatusOr<Preamble> preamble = readPreamble(file, name);
  if (!preamble)
    return preamble.status();
  HeaderParser header(preamble->header);
  if (!header.parse())
    return dataLoss("file '{}' has a header that is not a dictionary of descr, "
                    "fortran_order and shape",
                    name);
  std::optional<NpyType> type = typeOf(header.descr);
  if (!type)
    return makeStatus(StatusCode::Unsupported,
                      "file '{}' has elements of type '{}'; allowed are little-endian "
                      "f2, f4, f8, i1, i4, i8, u1, u4, b1 and V2 (bf16){}",
                      name, header.descr,
                      header.descr.ends_with("u2") ? "; save bf16 bits as array.view('V2')" : "");
  if (header.fortranOrder && header.shape.size() > 1)
    return makeStatus(StatusCode::Unsupported,
                      "file '{}' is in Fortran order; C order is allowed; save "
                      "numpy.ascontiguousarray of it",
                      name);
  StatusOr<int64_t> count = elementCount(header.shape);
  if (!count)
    return dataLoss("file '{}': {}", name, count.status().message());
  std::span<const uint8_t> data = file.subspan(preamble->dataAt);
  uint32_t size = bytesOf(*type);
  if (data.size() % size != 0 || data.size() / size != static_cast<uint64_t>(*count))
    return dataLoss("file '{}' holds {} bytes of data; its header asks for {} elements of "
                    "{} bytes",
                    name, data.size(), *count, size);
  try {
    return NpyArray{*type, std::move(header.shape), {data.begin(), data.end()}};
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "file '{}': no memory for {} bytes", name,
                      data.size());
  }
}

StatusOr<std::vector<uint8_t>> encodeNpy(const NpyArray &array, std::string_view name) {
  StatusOr<int64_t> count = elementCount(array.shape);
  if (!count)
    return count.status().withContext(fmt::format("file '{}'", name));
  uint32_t size = bytesOf(array.type);
  if (array.shape.size() > kMaxNpyRank || array.bytes.size() % size != 0 ||
      array.bytes.size() / size != static_cast<uint64_t>(*count))
    return invalidArgument("file '{}': array of rank {} has {} bytes; rank up to {} and "
                           "{} elements of {} bytes are allowed",
                           name, array.shape.size(), array.bytes.size(), kMaxNpyRank, *count, size);
  std::string header = headerText(array);
  constexpr size_t kFixed = 10; // magic, version and a two-byte length
  size_t padded = (kFixed + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.resize(padded - kFixed - 1, ' ');
  header += '\n';
  try {
    std::vector<uint8_t> file(kMagic.begin(), kMagic.end());
    file.insert(file.end(), {1, 0});
    // 64 extents of 20 digits stay far below 2^16.
    file.push_back(static_cast<uint8_t>(header.size() & 0xff));
    file.push_back(static_cast<uint8_t>(header.size() >> 8));
    file.insert(file.end(), header.begin(), header.end());
    file.insert(file.end(), array.bytes.begin(), array.bytes.end());
    return file;
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "file '{}': no memory for {} bytes", name,
                      array.bytes.size());
  }
}

StatusOr<NpyArray> readNpy(const std::string &path) {
  StatusOr<std::vector<uint8_t>> file = readFile(path, kMaxNpyBytes);
  if (!file)
    return file.status();
  return decodeNpy(*file, path);
}

Status writeNpy(const NpyArray &array, const std::string &path) {
  StatusOr<std::vector<uint8_t>> file = encodeNpy(array, path);
  if (!file)
    return file.status();
  return writeFileAtomic(path, *file);
}

} // namespace llmopt::runtime
