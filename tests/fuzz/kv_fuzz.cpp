// Calls to a block manager, chosen by the bytes, under the checks of the random test.
#include "tests/unit/kv/Driver.h"

#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  kvtest::Random random(std::span<const uint8_t>(data, size));
  kvtest::ManagerOptions options = kvtest::randomOptions(random);
  kvtest::Driver driver(options, random);
  bool ok = driver.manager != nullptr;
  for (size_t call = 0; ok && call < size; ++call)
    ok = driver.step();
  if (!ok || !driver.finishAll()) {
    std::fprintf(stderr, "%s\n", driver.error.c_str());
    std::abort();
  }
  return 0;
}
