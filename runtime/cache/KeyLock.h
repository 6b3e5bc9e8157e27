// A lock among threads and processes, one file for each key: who holds it compiles, the others
// wait for the result. The system gives it back when its process dies, however it dies, and a
// fork does not pass it on.
#pragma once

#include <optional>
#include <string>

namespace llmopt::runtime {

class KeyLock {
public:
  enum class State {
    Held,       ///< ours until `lock` goes out of scope
    Taken,      ///< another thread or process has it
    Impossible, ///< the folder cannot be written or its file system knows no locks
  };

  /// Does not wait.
  static State tryLock(const std::string &path, std::optional<KeyLock> &lock);

  KeyLock(KeyLock &&other) noexcept;
  KeyLock &operator=(KeyLock &&) = delete;
  /// Removes the file and gives the lock back.
  ~KeyLock();

private:
  KeyLock(int file, std::string path) : file(file), path(std::move(path)) {}

  int file;
  std::string path;
};

} // namespace llmopt::runtime
