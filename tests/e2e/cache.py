"""The kernel cache through llm-opt: compiled once, found by the next process, kept apart by
spec, CPU and limit; damaged or unwritable, it costs compiles and nothing else. Then an
exported bundle runs in the example program, which holds no compiler."""
import glob
import json
import os
import shutil
import subprocess
import time

from common import FOLDER, LLM_OPT, check, read_npy, run, write_npy

RUN_BUNDLE = os.path.join(os.path.dirname(LLM_OPT), "run-bundle")
shutil.rmtree("cache", ignore_errors=True)
shutil.rmtree("exported", ignore_errors=True)
os.environ["LLMOPT_CACHE_DIR"] = os.path.join(FOLDER, "cache")

SPEC = """
func.func @{name}(%q: tensor<?x?x2x8xf32>, %k: tensor<?x?x1x8xf32>, %v: tensor<?x?x1x8xf32>)
    -> tensor<?x?x2x8xf32> {{
  %o = attn.attention %q, %k, %v mask({mask}) : tensor<?x?x2x8xf32>, tensor<?x?x1x8xf32>,
       tensor<?x?x1x8xf32> -> tensor<?x?x2x8xf32>
  return %o : tensor<?x?x2x8xf32>
}}
"""


def write_spec(path, name, mask):
    with open(path, "w") as out:
        out.write(SPEC.format(name=name, mask=mask))


def verify(path="f.mlir", env=None):
    """Whether the program came from the cache."""
    before = dict(os.environ)
    os.environ.update(env or {})
    result = run("verify", path, "--count", "1")
    os.environ.clear()
    os.environ.update(before)
    check(result.returncode == 0 and not result.stderr, result.stdout + result.stderr)
    return "from the cache in" in result.stdout


def entries():
    result = run("cache", "ls", "--json")
    check(result.returncode == 0, result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]


write_spec("f.mlir", "f", "causal")
write_spec("g.mlir", "g", "window<5>")
check(entries() == [], "an empty cache")
check(not verify(), "the first run compiles")
check(verify(), "the second finds it")
check(not verify("g.mlir"), "another spec is another program")
check(not verify(env={"LLMOPT_CPU_FEATURES": "baseline"}), "so is another CPU")
check(verify(env={"LLMOPT_CPU_FEATURES": "baseline"}), "which is found again")
listed = entries()
check([entry["name"] for entry in listed] == ["g", "f", "f"] or
      sorted(entry["name"] for entry in listed) == ["f", "f", "g"], listed)
check(all(entry["usable"] and entry["target"] == "cpu" for entry in listed), listed)

# Damage is mended, also by a text listing that goes on.
for path in glob.glob("cache/*/*.bundle"):
    with open(path, "r+b") as file:
        file.truncate(100)
check(not any(entry["usable"] for entry in entries()), "damage is seen")
check("(unusable)" in run("cache", "ls").stdout, "and said")
check(not verify() and verify(), "compiled again, once")

result = run("cache", "gc", "--limit", "0", "--json")
check(json.loads(result.stdout)["kept_bytes"] == 0 and entries() == [], result.stdout)

# Sizes as people write them, of the option and the variable; entries of an older format.
os.makedirs("cache/1")
with open(f"cache/1/{'a' * 64}.bundle", "wb") as file:
    file.write(bytes(5000))
check("1 entries of other versions beside it" in run("cache", "ls").stdout, "they are told")
for limit, kept in (("1G", 5000), ("5K", 5000), ("4K", 0)):
    result = run("cache", "gc", "--limit", limit, "--json")
    check(result.returncode == 0 and json.loads(result.stdout)["kept_bytes"] == kept, result)
check(not os.path.exists("cache/1"), "an older format goes, and its folder")
for limit in ("-5", "abc", "1.5G"):
    line = f"'{limit}' is no number of bytes; write for example 4096, 64K, 10M or 2G\n"
    result = run("cache", "gc", f"--limit={limit}")
    check(result.returncode == 1 and result.stderr == "llm-opt cache: --limit " + line, result)
    os.environ["LLMOPT_CACHE_LIMIT"] = limit
    for command, options in (("cache", ["ls"]), ("verify", ["f.mlir", "--count", "1"])):
        result = run(command, *options)
        check(result.returncode == 1 and
              result.stderr == f"llm-opt {command}: LLMOPT_CACHE_LIMIT: " + line, result)
os.environ["LLMOPT_CACHE_LIMIT"] = "10G"
check("of 10240.0 MiB" in run("cache", "ls").stdout, "10G is 10 GiB")
del os.environ["LLMOPT_CACHE_LIMIT"]

# Killed in the middle of a compile, soon after it began and within NVRTC: the lock file that is
# left holds nobody up.
nvrtc = isinstance(json.loads(run("env", "--json").stdout)["nvrtc"], dict)
for seconds in (0, 0.1, 0.3) if nvrtc else ():
    process = subprocess.Popen([LLM_OPT, "verify", "f.mlir", "--device", "sim", "--count", "1"],
                               stdout=subprocess.DEVNULL)
    while not glob.glob("cache/*/*.lock") and process.poll() is None:
        time.sleep(0.002)
    time.sleep(seconds)
    process.kill()
    process.wait()
if nvrtc:
    result = run("verify", "f.mlir", "--device", "sim", "--count", "1", "--json")
    check(result.returncode == 0 and json.loads(result.stdout)["passed"], result)
    result = run("cache", "gc", "--limit", "0")
    check(result.returncode == 0 and not glob.glob("cache/*/*"), glob.glob("cache/*/*"))

# A place that cannot be written.
with open("plain-file", "w") as file:
    file.write("x")
check(not verify(env={"LLMOPT_CACHE_DIR": os.path.join(FOLDER, "plain-file")}), "no folder there")

# What is compiled is what is exported, and it runs without a compiler.
check(not verify(), "compiled")
result = run("cache", "export", "exported")
bundles = result.stdout.split()
check(result.returncode == 0 and len(bundles) == 1, result.stdout + result.stderr)
run("cache", "gc", "--limit", "0")
result = run("cache", "import", "exported")
check(result.returncode == 0 and verify(), "imported entries are found")

write_npy("q.npy", (1, 3, 2, 8), [((i * 37) % 23 - 11) / 7 for i in range(48)])
write_npy("k.npy", (1, 5, 1, 8), [((i * 29) % 19 - 9) / 5 for i in range(40)])
write_npy("v.npy", (1, 5, 1, 8), [((i * 31) % 17 - 8) / 3 for i in range(40)])
names = ["q=q.npy", "k=k.npy", "v=v.npy"]
inputs = [part for name in names for part in ("--input", name)]
result = run("run", "f.mlir", *inputs, "--output", "o=want.npy")
check(result.returncode == 0, result.stderr)
done = subprocess.run([RUN_BUNDLE, bundles[0], "cpu", *names, "--", "o=got.npy"],
                      capture_output=True, text=True)
check(done.returncode == 0 and done.stdout.startswith("ran 'f' for cpu on "),
      done.stdout + done.stderr)
check(read_npy("got.npy") == read_npy("want.npy"), "the example gives the same bits")
for arguments, message in ((["absent.bundle", "cpu"], "cannot open"),
                           ([bundles[0], "gpu"], "unknown device 'gpu'"),
                           ([bundles[0], "cpu"], "the array 'q' is missing")):
    done = subprocess.run([RUN_BUNDLE, *arguments], capture_output=True, text=True)
    check(done.returncode == 1 and message in done.stderr, done.stderr)
libraries = subprocess.run(["ldd", RUN_BUNDLE], capture_output=True, text=True).stdout
for library in ("LLVM", "MLIR", "nvrtc", "libcuda", "cudart"):
    check(library not in libraries, f"run-bundle needs {library}: {libraries}")
print("cache: compiled once, mended, limited, exported, run without a compiler")
