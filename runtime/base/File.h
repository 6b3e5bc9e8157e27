// Whole files in and out, with errors that name the file.
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace llmopt::runtime {

/// All bytes of a regular file. A file larger than `maxBytes` is refused before
/// anything is allocated.
StatusOr<std::vector<uint8_t>> readFile(const std::string &path, uint64_t maxBytes);

/// Refuses what `writeFileAtomic` would refuse without trying: a device, a pipe or a folder.
Status checkWritable(const std::string &path);

/// Publishes the bytes under `path`: readers see the old file or the new one,
/// never a part, also after a crash (temporary file in the same folder, fsync,
/// rename).
Status writeFileAtomic(const std::string &path, std::span<const uint8_t> bytes);

} // namespace llmopt::runtime
