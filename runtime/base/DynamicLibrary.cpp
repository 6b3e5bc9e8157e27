#include "runtime/base/DynamicLibrary.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <glob.h>
#include <link.h>

namespace llmopt::runtime {

namespace {

/// What dlerror says, without the name that stands before it.
std::string reasonOf(const std::string &candidate) {
  const char *text = ::dlerror();
  std::string reason = text ? text : "unknown reason";
  if (reason.starts_with(candidate + ": "))
    reason.erase(0, candidate.size() + 2);
  return reason;
}

std::string pathOf(void *handle, const std::string &candidate) {
  link_map *map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name)
    return map->l_name;
  return candidate;
}

} // namespace

StatusOr<DynamicLibrary> DynamicLibrary::open(std::span<const std::string> candidates,
                                              std::string_view what) {
  std::string tried;
  for (const std::string &candidate : candidates) {
    if (void *handle = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL))
      return DynamicLibrary(handle, pathOf(handle, candidate));
    tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", candidate, reasonOf(candidate));
  }
  return makeStatus(StatusCode::Unavailable, "{}; tried {}", what,
                    tried.empty() ? "nothing" : tried);
}

Status DynamicLibrary::resolve(std::span<const Symbol> symbols) const {
  std::string missing;
  for (const Symbol &symbol : symbols) {
    *symbol.slot = ::dlsym(handle, symbol.name);
    if (!*symbol.slot && !symbol.optional)
      missing += (missing.empty() ? "" : ", ") + std::string(symbol.name);
  }
  if (missing.empty())
    return {};
  return makeStatus(StatusCode::Unavailable, "library '{}' lacks {}; a newer one is needed", file,
                    missing);
}

std::vector<std::string> matchingPaths(const std::string &pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::reverse(paths.begin(), paths.end());
  return paths;
}

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

} // namespace llmopt::runtime
