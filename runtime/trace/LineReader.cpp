#include "runtime/trace/LineReader.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <zlib.h>

using namespace llmopt::runtime;

void LineReader::Close::operator()(void *file) const { gzclose(static_cast<gzFile>(file)); }

StatusOr<LineReader> LineReader::open(const std::string &path) {
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0)
    return makeStatus(StatusCode::NotFound, "{}: {}", path, std::strerror(errno));
  if (!S_ISREG(facts.st_mode))
    return invalidArgument("{}: not a regular file; a trace file is wanted", path);
  gzFile opened = gzopen(path.c_str(), "rb");
  if (!opened)
    return makeStatus(StatusCode::NotFound, "{}: {}", path, std::strerror(errno));
  gzbuffer(opened, 1 << 17);
  LineReader reader;
  reader.name = path;
  reader.file.reset(opened);
  return reader;
}

Status LineReader::fill() {
  constexpr size_t kChunk = 1 << 16;
  buffer.erase(0, begin);
  begin = 0;
  size_t old = buffer.size();
  if (old > kMaxLine)
    return dataLoss("{}:{}: the line has more than {} bytes; a trace with shorter lines is wanted",
                    name, number + 1, kMaxLine);
  buffer.resize(old + kChunk);
  gzFile stream = static_cast<gzFile>(file.get());
  int got = gzread(stream, buffer.data() + old, kChunk);
  int code = Z_OK;
  const char *message = gzerror(stream, &code);
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
    return dataLoss("{}:{}: the gzip stream is damaged or cut short ({}); fetch the file again",
                    name, number + 1, message);
  buffer.resize(old + size_t(got));
  atEnd = got == 0;
  return {};
}

StatusOr<bool> LineReader::next(std::string_view &line) {
  size_t searched = begin;
  size_t end;
  while ((end = buffer.find('\n', searched)) == std::string::npos) {
    if (atEnd) {
      end = buffer.size();
      break;
    }
    searched = buffer.size() - begin; // fill() moves the rest to the front
    LLMOPT_RETURN_IF_ERROR(fill());
  }
  if (begin == buffer.size())
    return false;
  ++number;
  line = std::string_view(buffer).substr(begin, end - begin);
  begin = std::min(end + 1, buffer.size());
  if (line.ends_with('\r'))
    line.remove_suffix(1);
  return true;
}
