"""llm-opt bench --save: what lies in the files is what the kernels ran on, and what they made of it.
Python builds the arrays from the block, and `llm-opt run` gives the same bits."""
import json
import math
import os

from common import check, read_npy, run, write_npy

CUDA = isinstance(json.loads(run("env", "--json").stdout)["nvrtc"], dict)
B = "bf16"
DENSE = f"tensor<?x?x2x16x{B}>"
SPECS = {
    "dense": f"""func.func @f(%q: {DENSE}, %k: {DENSE}, %v: {DENSE}) -> ({DENSE}, tensor<?x?x2xf32>) {{
  %o, %l = attn.attention %q, %k, %v mask(causal) : {DENSE}, {DENSE}, {DENSE} -> {DENSE}, tensor<?x?x2xf32>
  return %o, %l : {DENSE}, tensor<?x?x2xf32>
}}
""",
    "paged": f"""func.func @f(%q: tensor<?x4x32x{B}>, %kv: !attn.kv_cache<2x32x{B}, page = 16>,
             %s: !attn.sequences) -> tensor<?x4x32x{B}> {{
  %o = attn.attention %q, %kv, %s mask(causal)
    : tensor<?x4x32x{B}>, !attn.kv_cache<2x32x{B}, page = 16>, !attn.sequences -> tensor<?x4x32x{B}>
  return %o : tensor<?x4x32x{B}>
}}
"""}
# The second pool is longer than the block: 2200 pages of 16 x 2 x 32 elements are 2.1 blocks.
SHAPES = {"dense": ["q=20,kv=37"], "paged": ["q=3x1,kv=3x40", "q=1x1,kv=1x35200"]}


def built(folder, name, facts):
    """An array made from the block, as a .npy file."""
    (block,), values = read_npy(f"{folder}/block-{facts['type']}.npy")
    count = math.prod(facts["shape"])
    whole = values * -(-(facts["start"] + count) // block)
    write_npy(f"{name}.npy", facts["shape"], whole[facts["start"]:][:count], "<V2")


def same(spec, shape, device):
    folder = f"{spec}-{device}"
    done = run("bench", f"{spec}.mlir", "--device", device, "--shape", shape, "--repeats", "1",
               "--json", "--graph", "--direct", "--save", folder)
    check(done.returncode == 0, done.stderr)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    check([row["graph"] for row in rows] == [False, True] and rows[0]["ms"] > 0, rows)
    with open(f"{folder}/call.json") as file:
        arrays = json.load(file)["arrays"]
    check(len(arrays) == 3 and len({facts["start"] for facts in arrays.values()}) == 3, arrays)
    inputs = []
    for name, facts in arrays.items():
        built(folder, name, facts)
        inputs += ["--input", f"{name}={name}.npy"]
    results = ["o", "lse"] if spec == "dense" else ["o"]
    files = sorted(os.path.splitext(name)[0] for name in os.listdir(folder))
    for name in files:
        if name not in ("call", "block-bf16", *results):
            inputs += ["--input", f"{name}={folder}/{name}.npy"]
    done = run("run", f"{spec}.mlir", "--device", device, *inputs,
               *(part for name in results for part in ("--output", f"{name}={name}.npy")))
    check(done.returncode == 0, done.stderr)
    for name in results:
        check(read_npy(f"{name}.npy") == read_npy(f"{folder}/{name}.npy"),
              f"{spec} {shape} on {device}: '{name}' differs")


for spec, text in SPECS.items():
    with open(f"{spec}.mlir", "w") as file:
        file.write(text)
    for shape in SHAPES[spec]:
        same(spec, shape, "cpu")
    if CUDA:
        same(spec, SHAPES[spec][0], "cuda")

# With --check the arrays are the harness's own, and all of them lie in files.
done = run("bench", "paged.mlir", "--device", "cpu", "--shape", "q=1,kv=20", "--repeats", "1",
           "--check", "--save", "checked")
check(done.returncode == 0 and "right" in done.stdout, done.stdout + done.stderr)
check({"q.npy", "k_pool.npy", "v_pool.npy", "o.npy"} <= set(os.listdir("checked")), "all arrays")

for arguments, message in (
        (["--shape", "q=1,kv=2", "--shape", "q=1,kv=3", "--save", "x"],
         "--save holds one call; 1 specs and 2 shapes are given"),
        (["--shape", "q=1,kv=2", "--save", "/dev/null/x"],
         "the folder '/dev/null/x' cannot be made: Not a directory")):
    done = run("bench", "paged.mlir", "--device", "cpu", *arguments)
    check(done.returncode == 1 and message in done.stderr, done.stderr)
print("bench --save: the same bits from the files")
