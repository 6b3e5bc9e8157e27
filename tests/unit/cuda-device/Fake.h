// The substitute driver's control functions, in the library that the runtime opens.
#pragma once

#include "tests/support/fake-cuda/FakeCuda.h"

#include <cstdlib>
#include <dlfcn.h>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cudatest {

struct Fake {
  decltype(&fake_cuda_log) log;
  decltype(&fake_cuda_reset) reset;
  decltype(&fake_cuda_fail) fail;
  decltype(&fake_cuda_set) set;
  decltype(&fake_cuda_live) live;

  Fake() {
    void *library = ::dlopen(FAKE_CUDA, RTLD_NOW);
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
      if (!function)
        std::abort();
    };
    find(log, "fake_cuda_log"), find(reset, "fake_cuda_reset"), find(fail, "fake_cuda_fail");
    find(set, "fake_cuda_set"), find(live, "fake_cuda_live");
  }

  /// Lines of the log that begin with one of the names.
  std::vector<std::string> calls(std::initializer_list<std::string_view> names) const {
    std::vector<std::string> lines;
    std::string_view text = log();
    while (!text.empty()) {
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(line.size() + 1);
      for (std::string_view name : names)
        if (line.substr(0, line.find(' ')) == name)
          lines.emplace_back(line);
    }
    return lines;
  }
};

} // namespace cudatest
