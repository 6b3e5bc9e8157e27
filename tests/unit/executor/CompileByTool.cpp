// compileText by llm-opt of another build, for builds of the runtime alone. LLMOPT_COMPILER is its
// path. What it compiled is kept in the build folder, as long as the program is the same.
#include "Specs.h"

#include "runtime/bundle/BundleIO.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

using namespace llmopt;
using namespace llmopt::test;

namespace fs = std::filesystem;

namespace {

fs::path compiler() {
  const char *given = std::getenv("LLMOPT_COMPILER");
  return given ? given : LLMOPT_COMPILER_DEFAULT;
}

std::string contentOf(const fs::path &path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Other processes may do the same meanwhile: whoever is last puts the same bytes there.
Status compileTo(const fs::path &bundle, const std::string &text) {
  if (!fs::exists(compiler()))
    return makeStatus(StatusCode::Unavailable,
                      "{} is not there, which compiles the specs of this test; build llm-opt, or "
                      "name it in LLMOPT_COMPILER",
                      compiler().string());
  fs::path mine = bundle;
  mine += fmt::format(".{}", getpid());
  fs::path spec = mine, made = mine, said = mine;
  spec += ".mlir", made += ".made", said += ".said";
  std::ofstream(spec) << text;
  std::string command =
      fmt::format("'{}' compile '{}' --emit bundle -o '{}' >'{}' 2>&1", compiler().string(),
                  spec.string(), made.string(), said.string());
  Status status;
  if (std::system(command.c_str()) != 0)
    status = invalidArgument("{}: {}", compiler().string(), contentOf(said));
  else
    fs::rename(made, bundle);
  fs::remove(spec);
  fs::remove(said);
  return status;
}

} // namespace

StatusOr<bundle::Program> llmopt::test::compileText(const std::string &text) {
  static std::map<std::string, bundle::Program> compiled;
  if (auto found = compiled.find(text); found != compiled.end())
    return found->second;
  std::error_code ignored;
  std::string all =
      fmt::format("{} {} {}", fs::file_size(compiler(), ignored),
                  fs::last_write_time(compiler(), ignored).time_since_epoch().count(), text);
  fs::path folder = LLMOPT_SPEC_FOLDER;
  fs::create_directories(folder);
  fs::path bundle = folder / fmt::format("{:016x}.bundle", std::hash<std::string>()(all));
  if (!fs::exists(bundle))
    if (Status failed = compileTo(bundle, text); !failed.ok())
      return failed;
  StatusOr<bundle::Program> program = bundle::loadBundle(bundle.string());
  if (!program)
    return program.status();
  return compiled[text] = *std::move(program);
}
