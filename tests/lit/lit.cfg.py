# The text tests. `llm-opt`, FileCheck, not, split-file and mlir-opt-22 may be called by
# name in a RUN line. Besides lit's own, there are the substitutions
#   %test_data   the test data folder (the test then needs `REQUIRES: test-data`)
#   %source_root the root of the project
#   %models      the example model configurations
#   %python      a Python 3
#   %plugin      the plugin for mlir-opt (`REQUIRES: plugin`; a static build has none)
import os

import lit.formats

config.name = "lit"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)

if not os.path.exists(os.path.join(config.llmopt_binary_dir, "llm-opt")):
    lit_config.fatal(f"no llm-opt in {config.llmopt_binary_dir}; build it first")

path = [config.llmopt_binary_dir, config.llvm_tools_dir, config.environment.get("PATH", "")]
config.environment["PATH"] = os.pathsep.join(path)
for name in ("XDG_CACHE_HOME", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

config.substitutions.append((r"\bmlir-opt-22\b", os.path.join(config.llvm_tools_dir, "mlir-opt")))
config.substitutions.append(("%source_root", config.llmopt_source_root))
config.substitutions.append(("%models", os.path.join(config.llmopt_source_root, "examples/models")))
config.substitutions.append(("%python", config.python))

plugin = os.path.join(config.llmopt_library_dir, "LlmOptPlugin.so")
if os.path.exists(plugin):
    config.available_features.add("plugin")
    config.substitutions.append(("%plugin", plugin))

test_data = os.environ.get("LLMOPT_TEST_DATA") or config.test_data_default
if test_data and os.path.isdir(test_data):
    config.available_features.add("test-data")
    config.substitutions.append(("%test_data", test_data))
