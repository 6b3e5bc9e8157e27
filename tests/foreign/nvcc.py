"""Foreign PTX: compiles the kernels in tests/foreign/cuda with nvcc, for sm_80 and sm_90, runs them
with `llm-opt sim` in several orders and compares with what they must compute. Each has a mistake
that -DMISTAKE puts in; the simulator must name it.

    nvcc.py LLM-OPT FOLDER

nvcc is taken from PATH, CUDA_HOME or /usr/local/cuda. Where there is none the test is skipped (exit
code 77) and says so.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from common import check, read_npy, run, write_npy  # noqa: E402

ARCHS = (80, 90)


def find_nvcc():
    found = shutil.which("nvcc")
    for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        path = root and os.path.join(root, "bin", "nvcc")
        found = found or (path if path and os.path.exists(path) else None)
    if not found:
        print("skipped: no nvcc in PATH, CUDA_HOME or /usr/local/cuda")
        sys.exit(77)
    return found


NVCC = find_nvcc()


def array(name, values, kind="<f4", shape=None, output=False):
    """A parameter: an array of these values."""
    write_npy(f"{name}.npy", shape or (len(values),), values, kind)
    return {"name": name, "npy": f"{name}.npy"} | ({"output": f"{name}.out.npy"} if output else {})


def simulate(source, arch, launch, mistake=False):
    """The finished process of `llm-opt sim` on a kernel."""
    ptx = f"{source}-{arch}.ptx"
    command = [NVCC, "-ptx", f"-arch=sm_{arch}", "-lineinfo", "-std=c++17", "-o", ptx,
               str(HERE / "cuda" / f"{source}.cu")] + ["-DMISTAKE"] * mistake
    made = subprocess.run(command, capture_output=True, text=True)
    check(made.returncode == 0, f"nvcc: {made.stderr}")
    with open("launch.json", "w") as file:
        json.dump(launch, file)
    return run("sim", ptx, "--launch", "launch.json", "--orders", "3", "--json")


def verify(source, launch, want, fault):
    """Runs a kernel for each architecture: each array of `want` must have these values; with its
    mistake there must be this fault, at a line of the source."""
    for arch in ARCHS:
        done = simulate(source, arch, launch)
        check(done.returncode == 0, f"{source} for sm_{arch}: {done.stderr}")
        for name, values in want.items():
            _, got = read_npy(f"{name}.out.npy")
            wrong = [i for i, (a, b) in enumerate(zip(got, values)) if a != b]
            check(len(got) == len(values) and not wrong,
                  f"{source} for sm_{arch}: {name}[{wrong[:5]}] are not what they must be")
        counters = json.loads(done.stdout)["counters"]
        done = simulate(source, arch, launch, mistake=True)
        check(done.returncode == 1, f"{source} for sm_{arch}: the mistake was not found")
        found = json.loads(done.stdout)["fault"]
        check(found["kind"] in fault and found["source_file"].endswith(f"{source}.cu"), found)
        print(f"{source} for sm_{arch}: right, {counters['lane_instructions']} lane instructions, "
              f"{counters['mma']} mma; its mistake: {found['kind']} at line {found['source_line']}")


draw = random.Random(1)

numbers = [float(draw.randrange(-50, 50)) for _ in range(1000)]
keys = [draw.randrange(-10**9, 10**9) for _ in range(1000)]
verify("reduce",
       {"grid": [3], "block": [128],
        "params": [array("x", numbers), array("keys", keys, "<i4"),
                   array("sum", [1.0], output=True), array("most", [-2**31], "<i4", output=True),
                   {"i32": 1000}]},
       {"sum": [1 + sum(numbers)], "most": [max(keys)]}, ("global-out-of-bounds",))

rows, columns = 45, 70
matrix = [float(i) for i in range(rows * columns)]
verify("transpose",
       {"grid": [3, 2], "block": [32, 8],
        "params": [array("from", matrix), array("to", [0.0] * rows * columns, output=True),
                   {"i32": rows}, {"i32": columns}]},
       {"to": [matrix[r * columns + c] for c in range(columns) for r in range(rows)]},
       ("shared-race", "uninitialised-shared"))

text = [draw.choice(b"simulate") for _ in range(2000)]
verify("histogram",
       {"grid": [2], "block": [96],
        "params": [array("bytes", text, "|u1"),
                   array("counts", [0] * 256, "<u4", output=True), {"i32": 2000}]},
       {"counts": [text.count(i) for i in range(256)]}, ("shared-race",))

values = [draw.randrange(0, 1000) for _ in range(500)]
odd = [v for v in values if v % 2]
verify("compact",
       {"grid": [1], "block": [128],
        "params": [array("x", values, "<i4"),
                   array("kept", [-1] * 500, "<i4", output=True),
                   array("count", [0], "<i4", output=True), {"i32": 500}]},
       {"kept": odd + [-1] * (500 - len(odd)), "count": [len(odd)]}, ("shared-race",))


def product(a, b, height, width, depth, factor=1):
    """Of matrices of small integers, row by row; exact."""
    return [factor * sum(a[r * depth + k] * b[k * width + c] for k in range(depth))
            for r in range(height) for c in range(width)]


size = 48
a = [float(draw.randrange(-8, 9)) for _ in range(size * size)]
b = [float(draw.randrange(-8, 9)) for _ in range(size * size)]
verify("pipeline",
       {"grid": [3, 3], "block": [16, 16],
        "params": [array("a", a), array("b", b),
                   array("c", [0.0] * size * size, output=True), {"i32": size}]},
       {"c": product(a, b, size, size, size)}, ("unfinished-copy",))

height, width, depth = 32, 64, 80
a = [float(draw.randrange(-4, 5)) for _ in range(height * depth)]
b = [float(draw.randrange(-4, 5)) for _ in range(depth * width)]
verify("wmma",
       {"grid": [2, 2], "block": [64],
        "params": [array("a", a, "<f2"),
                   array("b", [b[k * width + c] for c in range(width) for k in range(depth)],
                         "<f2"),
                   array("c", [0.0] * height * width, output=True), {"i32": width},
                   {"i32": depth}]},
       {"c": product(a, b, height, width, depth, 2)}, ("shared-race",))
