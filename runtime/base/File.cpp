#include "runtime/base/File.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/stat.h>
#include <unistd.h>

namespace llmopt::runtime {

namespace {

/// A file descriptor that is closed at the end of its scope.
class Descriptor {
public:
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
  int get() const { return fd; }
  bool valid() const { return fd >= 0; }

private:
  int fd;
};

Status systemError(const std::string &path, const char *what) {
  int error = errno;
  StatusCode code = error == ENOENT                      ? StatusCode::NotFound
                    : error == ENOSPC || error == EDQUOT ? StatusCode::ResourceExhausted
                                                         : StatusCode::Unavailable;
  return makeStatus(code, "file '{}': cannot {}: {}", path, what, std::strerror(error));
}

Status writeAll(int fd, std::span<const uint8_t> bytes, const std::string &path) {
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t wrote = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote < 0)
      return systemError(path, "write");
    done += static_cast<size_t>(wrote);
  }
  return {};
}

Status writeAndSync(int fd, std::span<const uint8_t> bytes, const std::string &path) {
  // mkstemp makes the file private; published files follow the usual 0644.
  if (::fchmod(fd, 0644) != 0)
    return systemError(path, "set the mode of");
  LLMOPT_RETURN_IF_ERROR(writeAll(fd, bytes, path));
  if (::fsync(fd) != 0)
    return systemError(path, "flush");
  return {};
}

/// The rename itself lives in the folder: without this it may be lost in a
/// crash.
void syncFolderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.valid())
    ::fsync(descriptor.get());
}

} // namespace

StatusOr<std::vector<uint8_t>> readFile(const std::string &path, uint64_t maxBytes) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid())
    return systemError(path, "open");
  struct stat info;
  if (::fstat(file.get(), &info) != 0)
    return systemError(path, "inspect");
  if (!S_ISREG(info.st_mode))
    return invalidArgument("file '{}' is not a regular file", path);
  uint64_t size = static_cast<uint64_t>(info.st_size);
  if (size > maxBytes)
    return invalidArgument("file '{}' has {} bytes; at most {} are allowed", path, size, maxBytes);
  std::vector<uint8_t> bytes;
  try {
    bytes.resize(size);
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "file '{}': no memory for {} bytes", path,
                      size);
  }
  size_t done = 0;
  while (done < size) {
    ssize_t got = ::read(file.get(), bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return systemError(path, "read");
    if (got == 0)
      return dataLoss("file '{}' ended after {} of {} bytes; it was changed while it was "
                      "read",
                      path, done, size);
    done += static_cast<size_t>(got);
  }
  return bytes;
}

Status checkWritable(const std::string &path) {
  // Renaming onto a device or a pipe would put a plain file in its place.
  struct stat existing;
  if (::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode))
    return invalidArgument("'{}' is no regular file; name a file to write", path);
  return {};
}

Status writeFileAtomic(const std::string &path, std::span<const uint8_t> bytes) {
  LLMOPT_RETURN_IF_ERROR(checkWritable(path));
  std::string temporary = path + ".tmp-XXXXXX";
  {
    Descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!file.valid())
      return systemError(path, "create a temporary file beside");
    if (Status status = writeAndSync(file.get(), bytes, temporary); !status.ok()) {
      ::unlink(temporary.c_str());
      return status;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    Status status = systemError(path, "rename a temporary file to");
    ::unlink(temporary.c_str());
    return status;
  }
  syncFolderOf(path);
  return {};
}

} // namespace llmopt::runtime
