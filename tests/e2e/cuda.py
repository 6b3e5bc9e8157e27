"""The device cuda on the substitute driver (tests/support/fake-cuda): commands, captured graphs,
machine code and PTX, and failures of the driver."""
import json
import os
import pathlib
import subprocess
import sys

from common import LLM_OPT, check, read_npy, run, write_npy

SPECS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "specs"


def spec(name):
    return str(SPECS / f"{name}.mlir")


def with_driver(*arguments, **settings):
    """llm-opt with settings of the substitute driver, and the calls that it got."""
    log = pathlib.Path("calls.log")
    log.unlink(missing_ok=True)
    names = {f"FAKE_CUDA_{name.upper()}": value for name, value in settings.items()}
    os.environ.update(names, FAKE_CUDA_LOG=str(log.resolve()))
    done = run(*arguments)
    for name in (*names, "FAKE_CUDA_LOG"):
        del os.environ[name]
    calls = log.read_text().splitlines() if log.exists() else []
    return done, [call.split()[0] for call in calls]


env = json.loads(run("env", "--json").stdout)
if not isinstance(env["nvrtc"], dict):
    print(f"no NVRTC: {env['nvrtc']}")
    sys.exit(77)
check(env["cuda_devices"][0]["name"] == "Fake GPU", env["cuda_devices"])

# Right numbers, with machine code from the cache's bundle; then with PTX, where the driver
# refuses the machine code.
for name in ("encoder-dense", "mistral-window", "gemma2-softcap", "merge-partials"):
    done, calls = with_driver("verify", spec(name), "--device", "cuda", "--count", "3")
    check(done.returncode == 0 and "3 passed, 0 failed" in done.stdout, done.stdout + done.stderr)
    kernels = calls.count("cuModuleGetFunction")
    check(kernels and calls.count("cuModuleLoadDataEx") <= kernels, f"{name}: {calls}")
    check(calls[-1] == "cuDevicePrimaryCtxRelease", f"{name}: the context is given back")
done, calls = with_driver("verify", spec("merge-partials"), "--device", "cuda", "--count", "2",
                          fail="cuModuleLoadDataEx=209")
check(done.returncode == 0 and calls.count("cuModuleLoadDataEx") == 2, done.stdout + done.stderr)

# Another chip gets machine code of its own; memory without pools.
done, calls = with_driver("verify", spec("merge-partials"), "--device", "cuda", "--count", "2",
                          set="major=9,minor=0,pools=0,units=7")
check(done.returncode == 0 and "cuMemAlloc" in calls, done.stdout + done.stderr)

# One capture, many batches: shorter ones, padded ones (A21, A24), trees (sglang#37553).
for name in ("llama-decode-paged", "append-then-attend", "tree-verify"):
    done, calls = with_driver("verify", spec(name), "--device", "cuda", "--count", "2", "--graph")
    check(done.returncode == 0 and "2 passed, 0 failed" in done.stdout, done.stdout + done.stderr)
    check(calls.count("cuStreamBeginCapture") == 2 and calls.count("cuGraphLaunch") >= 10, calls)

# Timing runs its calls.
done, calls = with_driver("bench", spec("llama-decode-paged"), "--device", "cuda", "--json",
                          "--repeats", "2", "--graph", "--check", "--shape", "q=3x1,kv=3x40")
row = json.loads(done.stdout)
check(done.returncode == 0 and row["passed"] and row["ms"] > 0 and row["repeats"] == 2, row)
check(calls.count("cuGraphLaunch") == 5 and calls.count("cuEventElapsedTime") == 7, calls)
done = run("bench", spec("llama-decode-paged"), "--device", "cpu", "--shape", "q=1")
check(done.returncode == 1 and "names 1 query and 0 key lengths" in done.stderr, done.stderr)

# The same call on arrays of one's own, on both devices.
with open("dense.mlir", "w") as file:
    file.write("""func.func @f(%q: tensor<?x?x2x16xf32>, %k: tensor<?x?x2x16xf32>,
                  %v: tensor<?x?x2x16xf32>) -> tensor<?x?x2x16xf32> {
  %o = attn.attention %q, %k, %v mask(causal)
       : tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32> -> tensor<?x?x2x16xf32>
  return %o : tensor<?x?x2x16xf32>
}
""")
# A10: queries are the last ones of the keys, however many of both there are, on both devices.
for queries, keys in ((30, 30), (30, 45), (1, 40), (40, 30)):
    write_npy("q.npy", (1, queries, 2, 16), [(i * 37 % 101 - 50) / 50 for i in range(32 * queries)])
    for name, factor in (("k", 53), ("v", 29)):
        write_npy(f"{name}.npy", (1, keys, 2, 16),
                  [(i * factor % 97 - 48) / 50 for i in range(32 * keys)])
    inputs = [part for name in "qkv" for part in ("--input", f"{name}={name}.npy")]
    for device in ("cpu", "cuda"):
        done = run("run", "dense.mlir", "--device", device, *inputs, "--output", f"o={device}.npy")
        check(done.returncode == 0, done.stderr)
    (shape, want), (other, got) = read_npy("cpu.npy"), read_npy("cuda.npy")
    check(shape == other == (1, queries, 2, 16), other)
    check(max(abs(a - b) for a, b in zip(want, got)) < 1e-5,
          f"cpu and cuda differ for {queries} queries and {keys} keys")
    # Rows that see nothing are 0.
    check(all(x == 0 for x in got[:32 * max(0, queries - keys)]), "rows without keys")

# A trace through the serving runtime, with kernels.
with open("azure.csv", "w") as file:
    file.write("TIMESTAMP,ContextTokens,GeneratedTokens\r\n")
    for i in range(4):
        file.write(f"2023-11-16 18:15:{i:02}.0000000,{20 + i * 7},{2 + i}\r\n")
with open("model.json", "w") as file:
    json.dump({"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 1,
               "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
               "intermediate_size": 256, "vocab_size": 1000, "torch_dtype": "bfloat16"}, file)
done, calls = with_driver("replay", "azure.csv", "--device", "cuda", "--speed", "50", "--pages",
                          "40", "--groups", "model.json", "--check-every", "1", "--json")
check(done.returncode == 0, done.stderr)
facts = json.loads(done.stdout)
check(facts["finished"] == 4 and facts["refused"] == 0, facts)
check("cuLaunchKernel" in calls, "kernels ran")

# The demo: decode beside the device's own copies; nothing of the CPU's limits.
with open("tiny.json", "w") as file:
    json.dump({"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1,
               "sliding_window": 16}, file)
done, calls = with_driver("demo", "tiny.json", "--device", "cuda", "--json")
rows = [json.loads(line) for line in done.stdout.splitlines()]
check(done.returncode == 0 and len(rows) == 2, done.stderr)
check(all(row["passed"] for row in rows), rows)
check([row.get("limit") for row in rows] == [None, "copy"], rows)
done, calls = with_driver("demo", "tiny.json", "--device", "cuda")
check(done.stdout.startswith("Fake GPU: copies ") and "FMA" not in done.stdout, done.stdout)

# Chips of generations that came later: generic PTX, or the schedule of an older chip, and a
# warning that says so.
newest = env["nvrtc"]["archs"][-1]
for major, numbers in ((11, 100), (13, 120)):
    done, calls = with_driver("verify", spec("merge-partials"), "--device", "cuda", "--count", "2",
                              set=f"major={major},minor=0")
    check(done.returncode == 0 and "2 passed, 0 failed" in done.stdout, done.stdout + done.stderr)
    check(f"no numbers for sm_{major}0; the schedule follows from those of sm_{numbers}"
          in done.stderr, done.stderr)
    if 10 * major > newest:
        check("PTX for compute_80 was made" in done.stderr, done.stderr)

# One bundle for several chips and the CPU, each with what fits it best.
RUN_BUNDLE = os.path.join(os.path.dirname(LLM_OPT), "run-bundle")
done = run("compile", "dense.mlir", "--target", "cpu,cuda:sm_90a,sm_120", "-o", "family.bundle")
check(done.returncode == 0 and not done.stderr, done.stderr)
os.environ["FAKE_CUDA_BUNDLES"] = os.path.abspath("family.bundle")
files = [f"{name}={name}.npy" for name in "qkv"]
_, want = read_npy("cpu.npy")
for device, chip, target in (("cpu", "8,minor=0", "cpu"), ("cuda", "9,minor=0", "cuda:sm_90a"),
                             ("cuda", "12,minor=0", "cuda:sm_120"),
                             ("cuda", "8,minor=6", "cuda:compute_80"),
                             ("cuda", "10,minor=0", "cuda:compute_80")):
    os.environ["FAKE_CUDA_SET"] = "major=" + chip
    done = subprocess.run([RUN_BUNDLE, "family.bundle", device, *files, "--", "o=family.npy"],
                          capture_output=True, text=True)
    check(done.returncode == 0 and done.stdout.startswith(f"ran 'f' for {target} on "),
          f"{chip}: {done.stdout}{done.stderr}")
    _, got = read_npy("family.npy")
    check(max(abs(a - b) for a, b in zip(want, got)) < 1e-5, f"{target}: other numbers than cpu")
del os.environ["FAKE_CUDA_SET"], os.environ["FAKE_CUDA_BUNDLES"]
for target, emit, message in (
        ("cuda:sm_80,sm_90", "ptx", "--emit ptx takes one target; only a bundle holds several: "
         "'cuda:sm_80,sm_90'"),
        ("cuda:sm_80,sm_80", "bundle", "--target names 'cuda:sm_80' twice"),
        ("cuda:sm_80,", "bundle", "unknown target ''; cpu and cuda:sm_80 are of the form wanted")):
    done = run("compile", "dense.mlir", "--target", target, "--emit", emit, "-o", "none")
    check(done.returncode == 1 and done.stderr == f"llm-opt compile: {message}\n", done.stderr)

# Failures: exit code 1, one line that names the call, nothing that hangs or crashes.
VERIFY = ["verify", spec("merge-partials"), "--device", "cuda", "--count", "1"]
LOST = "the device is lost to this process; start the process anew"
FAILURES = [
    ({"set": "version=11080"}, "supports CUDA 11.8; 12.0 or later is needed; update it"),
    ({"set": "devices=0"}, "no CUDA device: the driver"),
    ({"fail": "cuInit=803"}, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    ({"fail": "cuDevicePrimaryCtxRetain=2"}, "cuDevicePrimaryCtxRetain failed: out of memory"),
    ({"memory": "5000"}, "no memory for "),
    ({"fail": "cuMemAllocFromPoolAsync=2@1"}, "no memory for "),
    ({"set": "version=12040"}, "needs a driver for CUDA 13.0; this one supports 12.4; update it"),
    ({"set": "shared=100", "spec": "encoder-dense"}, "bytes of shared memory; the device has 100"),
    ({"fail": "cuLaunchKernel=1"}, "cuLaunchKernel failed: invalid argument"),
    ({"fail": "cuLaunchKernel=719"}, LOST),
    ({"fail": "cuLaunchKernel=700"}, LOST),
    ({"fail": "cuMemcpyDtoHAsync=1"}, "cuMemcpyDtoHAsync failed: invalid argument"),
]
toolkit = env["nvrtc"]["version"]
for settings, message in FAILURES:
    arguments = list(VERIFY)
    settings = dict(settings)
    if settings.get("set") == "version=12040" and not toolkit.startswith("13"):
        continue  # an older toolkit's code runs on that driver
    if "spec" in settings:
        arguments[1] = spec(settings.pop("spec"))
    done, _ = with_driver(*arguments, **settings)
    check(done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1,
          f"{settings}: {done.returncode} {done.stderr}")
print("the device cuda, on the substitute driver")
