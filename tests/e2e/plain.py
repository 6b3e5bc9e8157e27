"""A machine without NVRTC and without a driver: the CPU computes, and what needs either says so."""
import json
import math
import os

from common import check, read_npy, run, write_npy

os.environ["LLMOPT_NVRTC"] = "/nowhere/libnvrtc.so.13"
os.environ["LLMOPT_CUDA_LIBRARY"] = "/nowhere/libcuda.so.1"
os.environ["LLMOPT_CACHE_DIR"] = "/dev/null"

TENSOR = "tensor<?x?x2x8xf32>"
with open("f.mlir", "w") as file:
    file.write(f"""func.func @f(%q: {TENSOR}, %k: {TENSOR}, %v: {TENSOR}) -> {TENSOR} {{
  %o = attn.attention %q, %k, %v mask(causal and window<4>) scale(0.5)
       : {TENSOR}, {TENSOR}, {TENSOR} -> {TENSOR}
  return %o : {TENSOR}
}}
""")

env = json.loads(run("env", "--json").stdout)
check(str(env["nvrtc"]).startswith("no NVRTC"), env["nvrtc"])
check(str(env["cuda_driver"]).startswith("no CUDA driver"), env["cuda_driver"])

QUERIES, KEYS = 5, 9
sizes = {"q": QUERIES, "k": KEYS, "v": KEYS}
arrays = {name: [(i * factor % 23 - 11) / 9 for i in range(count * 16)]
          for (name, count), factor in zip(sizes.items(), (7, 5, 3))}
for name, count in sizes.items():
    write_npy(f"{name}.npy", (1, count, 2, 8), arrays[name])
inputs = [part for name in sizes for part in ("--input", f"{name}={name}.npy")]


def row(name, at, head):
    return arrays[name][(at * 2 + head) * 8:][:8]


want = []
for query in range(QUERIES):
    for head in range(2):
        position = query + KEYS - QUERIES
        seen = range(max(0, position - 3), position + 1)
        weights = [math.exp(0.5 * sum(a * b for a, b in zip(row("q", query, head),
                                                            row("k", key, head)))) for key in seen]
        want += [sum(w * row("v", key, head)[c] for w, key in zip(weights, seen)) / sum(weights)
                 for c in range(8)]

for device in ("cpu", "auto"):
    done = run("run", "f.mlir", "--device", device, *inputs, "--output", "o=o.npy")
    check(done.returncode == 0 and not done.stderr, done.stderr)
    shape, got = read_npy("o.npy")
    check(shape == (1, QUERIES, 2, 8), shape)
    check(max(abs(a - b) for a, b in zip(got, want, strict=True)) < 1e-5, f"{device}: {got}")
done = run("verify", "f.mlir", "--count", "5")
check(done.returncode == 0 and "5 passed, 0 failed" in done.stdout, done.stdout + done.stderr)

for device, message in (("sim", "no NVRTC: the CUDA compiler library was not found"),
                        ("cuda", "no CUDA driver: /nowhere/libcuda.so.1 not found")):
    done = run("run", "f.mlir", "--device", device, *inputs, "--output", "o=o.npy")
    check(done.returncode == 1 and message in done.stderr, f"{device}: {done}")
print("without NVRTC and driver: the CPU's numbers, and two errors")
