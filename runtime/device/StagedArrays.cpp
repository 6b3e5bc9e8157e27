#include "runtime/device/StagedArrays.h"

#include <algorithm>
#include <new>
#include <string_view>

namespace llmopt::runtime {

namespace {

/// Whether the program's kernels write an array.
bool isWritten(const bundle::Program &program, std::string_view name) {
  bool appends = std::any_of(program.kernels.begin(), program.kernels.end(),
                             [](const auto &k) { return k.kind == bundle::KernelKind::Append; });
  for (const bundle::Buffer &buffer : program.buffers)
    if (buffer.name == name)
      return buffer.output || (appends && (buffer.role == bundle::BufferRole::KeyPool ||
                                           buffer.role == bundle::BufferRole::ValuePool));
  return false;
}

/// Copies that were given run on after one that was refused, and the caller is told that they do
/// not: its memory may go.
Status settled(Stream &stream, Status status) {
  if (!status.ok())
    static_cast<void>(stream.synchronize());
  return status;
}

} // namespace

uint64_t spannedBytes(const ArrayRef &array) {
  uint64_t last = 0;
  for (size_t dim = 0; dim < array.shape.size(); ++dim) {
    if (array.shape[dim] <= 0)
      return 0;
    uint64_t stride = dim < array.strides.size() ? static_cast<uint64_t>(array.strides[dim]) : 0;
    last += static_cast<uint64_t>(array.shape[dim] - 1) * stride;
  }
  return (last + 1) * bytesOf(array.type);
}

Status StagedArrays::stage(Stream &stream, const bundle::Program &program,
                           const ArrayStorage &storage) {
  for (auto &[name, array] : onDevice.arrays) {
    auto *first = static_cast<uint8_t *>(array.data);
    std::span<uint8_t> bytes{first, spannedBytes(array)};
    if (auto given = storage.find(name); given != storage.end())
      bytes = given->second;
    StatusOr<DeviceMemory> memory = stream.device()->allocate(bytes.size());
    if (!memory)
      return memory.status().withContext(fmt::format("array '{}'", name));
    array.host = first;
    array.data = memory->data() + (first - bytes.data());
    copies.push_back({bytes.data(), *std::move(memory), isWritten(program, name)});
  }
  return refresh(stream);
}

StatusOr<StagedArrays> StagedArrays::upload(Stream &stream, const bundle::Program &program,
                                            const CallArguments &arguments,
                                            const ArrayStorage &storage) try {
  StagedArrays staged;
  staged.onDevice = arguments;
  if (stream.device()->facts().hostMemory)
    return staged;
  LLMOPT_RETURN_IF_ERROR(staged.stage(stream, program, storage));
  return staged;
} catch (const std::bad_alloc &) {
  return makeStatus(StatusCode::ResourceExhausted, "no memory to copy the arrays of a call");
}

Status StagedArrays::refresh(Stream &stream) {
  Status status;
  for (const Copy &copy : copies)
    if (status.ok() && copy.memory.size())
      status = stream.copyIn(copy.memory.data(), copy.host, copy.memory.size());
  return settled(stream, status);
}

Status StagedArrays::download(Stream &stream, Which which) {
  Status status;
  for (Copy &copy : copies)
    if (status.ok() && copy.memory.size() && (copy.written || which == Which::All))
      status = stream.copyOut(copy.host, copy.memory.data(), copy.memory.size());
  if (!status.ok())
    return settled(stream, status);
  return stream.synchronize();
}

} // namespace llmopt::runtime
