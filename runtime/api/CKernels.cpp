// The C API: status, devices and calls of kernels.
#include "runtime/api/CObjects.h"

#include "runtime/bundle/BundleIO.h"
#include "runtime/device/Devices.h"

using namespace llmopt::runtime;
using namespace llmopt::runtime::capi;

namespace bundle = llmopt::bundle;

struct llmopt_kernel {
  Session session;
  std::shared_ptr<DeviceProgram> program;
};

namespace {

llmopt_status noMemory{StatusCode::ResourceExhausted, "no memory"};

static_assert(int(StatusCode::Ok) == LLMOPT_OK &&
              int(StatusCode::InvalidArgument) == LLMOPT_INVALID_ARGUMENT &&
              int(StatusCode::NotFound) == LLMOPT_NOT_FOUND &&
              int(StatusCode::Unavailable) == LLMOPT_UNAVAILABLE &&
              int(StatusCode::ResourceExhausted) == LLMOPT_RESOURCE_EXHAUSTED &&
              int(StatusCode::DataLoss) == LLMOPT_DATA_LOSS &&
              int(StatusCode::Unsupported) == LLMOPT_UNSUPPORTED &&
              int(StatusCode::Internal) == LLMOPT_INTERNAL);
static_assert(int(bundle::ElementType::Bool) == LLMOPT_BOOL &&
              int(bundle::ElementType::BF16) == LLMOPT_BF16);

Status addArray(const llmopt_array &from, CallArguments &arguments) {
  LLMOPT_RETURN_IF_ERROR(notNull(from.name, "the name of an array"));
  if (from.rank > bundle::kMaxRank)
    return invalidArgument("array '{}' has rank {}; at most {} is allowed", from.name, from.rank,
                           bundle::kMaxRank);
  if (from.rank)
    LLMOPT_RETURN_IF_ERROR(notNull(from.shape, "the shape of an array"));
  StatusOr<bundle::ElementType> type = typeOf(from.type);
  if (!type)
    return type.status().withContext(fmt::format("array '{}'", from.name));
  for (uint32_t i = 0; i < from.rank; ++i)
    if (from.shape[i] < 0 || (from.strides && from.strides[i] < 0))
      return invalidArgument("array '{}' has a negative extent or stride", from.name);
  ArrayRef array = ArrayRef::contiguous(from.data, *type, {from.shape, from.shape + from.rank});
  if (from.strides)
    array.strides.assign(from.strides, from.strides + from.rank);
  arguments.arrays[from.name] = std::move(array);
  return {};
}

} // namespace

llmopt_status *llmopt::runtime::capi::outOfMemory() noexcept { return &noMemory; }

llmopt_status *llmopt::runtime::capi::statusOf(const Status &status) noexcept {
  if (status.ok())
    return nullptr;
  return llmopt_status_new(llmopt_code(status.code()), status.message().c_str());
}

Status llmopt::runtime::capi::fromC(llmopt_status *status) {
  if (!status)
    return {};
  Status made(status->code, status->message);
  llmopt_status_free(status);
  return made;
}

StatusOr<bundle::ElementType> llmopt::runtime::capi::typeOf(llmopt_type type) {
  if (int(type) < LLMOPT_F32 || int(type) > LLMOPT_BOOL)
    return invalidArgument("type {}; llmopt_type has {} to {}", int(type), int(LLMOPT_F32),
                           int(LLMOPT_BOOL));
  return bundle::ElementType(type);
}

StatusOr<std::vector<bundle::Program>> llmopt::runtime::capi::familyOf(const void *bytes,
                                                                       size_t size) {
  LLMOPT_RETURN_IF_ERROR(notNull(bytes, "the bundle"));
  return bundle::deserializeFamily({static_cast<const uint8_t *>(bytes), size});
}

Status llmopt::runtime::capi::takeNumbers(const llmopt_number *numbers, size_t count,
                                          std::map<std::string, ScalarValue, std::less<>> &values) {
  for (size_t i = 0; i < count; ++i) {
    llmopt_number number;
    LLMOPT_RETURN_IF_ERROR(takeAt(numbers, i, "a number", number));
    LLMOPT_RETURN_IF_ERROR(notNull(number.name, "the name of a number"));
    values[number.name] =
        number.is_integer ? ScalarValue(number.integer) : ScalarValue(number.real);
  }
  return {};
}

extern "C" {

uint32_t llmopt_api_version(void) { return LLMOPT_API_VERSION; }

llmopt_code llmopt_status_code(const llmopt_status *status) {
  return status ? llmopt_code(status->code) : LLMOPT_OK;
}

const char *llmopt_status_message(const llmopt_status *status) {
  return status ? status->message.c_str() : "";
}

void llmopt_status_free(llmopt_status *status) {
  if (status != &noMemory)
    delete status;
}

llmopt_status *llmopt_status_new(llmopt_code code, const char *message) {
  if (code == LLMOPT_OK)
    return nullptr;
  bool known = code > LLMOPT_OK && code <= LLMOPT_INTERNAL;
  try {
    return new llmopt_status{known ? StatusCode(code) : StatusCode::Internal,
                             message ? message : ""};
  } catch (...) {
    return outOfMemory();
  }
}

llmopt_status *llmopt_device_open(const char *name, llmopt_device **device) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(name, "the device's name"));
    LLMOPT_RETURN_IF_ERROR(notNull(device, "where the device goes"));
    StatusOr<std::shared_ptr<Device>> opened = openDevice(name);
    if (!opened)
      return opened.status();
    *device = new llmopt_device{*std::move(opened)};
    return {};
  });
}

void llmopt_device_free(llmopt_device *device) { delete device; }

llmopt_status *llmopt_kernel_load(llmopt_device *device, const void *bytes, size_t size,
                                  llmopt_kernel **kernel) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(device, "the device"));
    LLMOPT_RETURN_IF_ERROR(notNull(kernel, "where the kernel goes"));
    StatusOr<std::vector<bundle::Program>> family = familyOf(bytes, size);
    if (!family)
      return family.status();
    StatusOr<Session> session = Session::on(device->device);
    if (!session)
      return session.status();
    StatusOr<std::shared_ptr<DeviceProgram>> program = session->load(*std::move(family));
    if (!program)
      return program.status();
    *kernel = new llmopt_kernel{*std::move(session), *std::move(program)};
    return {};
  });
}

void llmopt_kernel_free(llmopt_kernel *kernel) { delete kernel; }

llmopt_status *llmopt_kernel_run(llmopt_kernel *kernel, const llmopt_array *arrays, size_t arrays_n,
                                 const llmopt_number *numbers, size_t numbers_n) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(kernel, "the kernel"));
    CallArguments arguments;
    for (size_t i = 0; i < arrays_n; ++i) {
      llmopt_array array;
      LLMOPT_RETURN_IF_ERROR(takeAt(arrays, i, "an array", array));
      LLMOPT_RETURN_IF_ERROR(addArray(array, arguments));
    }
    LLMOPT_RETURN_IF_ERROR(takeNumbers(numbers, numbers_n, arguments.scalars));
    return kernel->session.run(kernel->program, arguments);
  });
}

} // extern "C"
