"""Foreign PTX: compiles kernels with Triton for sm_80 and sm_90, without a GPU, runs them with
`llm-opt sim` and compares with numpy. Author and checker of our own kernels could be wrong
together; these come from another compiler.

    foreign.py LLM-OPT FOLDER

Triton and numpy are taken from the Python that runs this, else installed with pip into
FOLDER/venv. Where that cannot be done the test is skipped (exit code 77) and says so.
"""
import importlib.util
import json
import os
import re
import subprocess
import sys

LLM_OPT, FOLDER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ("triton", "numpy")


def restart_with_packages():
    """Ends this process: runs the script in a virtual environment that has what it needs."""
    venv = os.path.join(FOLDER, "venv")
    python = os.path.join(venv, "bin", "python")
    if not os.path.exists(os.path.join(venv, "complete")):
        made = subprocess.run([sys.executable, "-m", "venv", venv], capture_output=True, text=True)
        if made.returncode == 0:
            made = subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES],
                                  capture_output=True, text=True)
        if made.returncode:
            print(f"skipped: {', '.join(PACKAGES)} cannot be installed: {made.stderr.strip()[-500:]}")
            sys.exit(77)
        open(os.path.join(venv, "complete"), "w").close()
    sys.exit(subprocess.run([python, __file__, *sys.argv[1:3], "--installed"]).returncode)


if any(importlib.util.find_spec(name) is None for name in PACKAGES):
    if "--installed" in sys.argv:
        print(f"skipped: {', '.join(PACKAGES)} are not there after installation")
        sys.exit(77)
    os.makedirs(FOLDER, exist_ok=True)
    restart_with_packages()

import numpy as np  # noqa: E402

os.environ["TRITON_CACHE_DIR"] = os.path.join(FOLDER, "triton")
import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

sys.path.insert(0, HERE)
import kernels  # noqa: E402


ARCHS = (80, 90)


def compile_ptx(arch, function, signature, constants, **options):
    """PTX text, entry name, threads of a block, bytes of shared memory."""
    source = ASTSource(fn=function, constexprs=constants,
                       signature=signature | {name: "constexpr" for name in constants})
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    metadata = compiled.metadata
    return (compiled.asm["ptx"], metadata.name, 32 * metadata.num_warps, metadata.shared,
            metadata.tensordesc_meta or [])


class Described:
    """An array that the kernel gets as a tensor descriptor: a map, extents and strides."""

    def __init__(self, array):
        self.array = array


def tensor_map(meta):
    """What Triton says of a descriptor, as `llm-opt sim` takes it."""
    return {"box": meta["block_size"][::-1], "swizzle": (0, 32, 64, 128)[meta["swizzle"]]}


def simulate(name, compiled, grid, params, outputs):
    """Runs a kernel in the simulator, in four orders; its output arrays."""
    ptx, entry, threads, shared, descriptors = compiled
    descriptors = list(descriptors)
    folder = os.path.join(FOLDER, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernel.ptx"), "w") as file:
        file.write(ptx)
    entries = []
    for key, value in params.items():
        described = isinstance(value, Described)
        if described:
            value = value.array
        if isinstance(value, np.ndarray):
            np.save(os.path.join(folder, key + ".npy"), value)
            entries.append({"name": key, "npy": key + ".npy"})
            if key in outputs:
                entries[-1]["output"] = key + ".out.npy"
            if described:
                entries[-1] = {"tensormap": entries[-1] | tensor_map(descriptors.pop(0))}
                entries += [{"i32": extent} for extent in value.shape]
                entries += [{"i64": stride // value.itemsize} for stride in value.strides]
        else:
            entries.append({"f32" if isinstance(value, float) else "i32": value})
    # Triton appends pointers to scratch memory, which these kernels do not use.
    header = ptx[ptx.index(f".entry {entry}"):]
    wanted = len(re.findall(r"\.param", header[:header.index(")")]))
    entries += [{"i64": 0}] * (wanted - len(entries))
    launch = {"kernel": entry, "grid": list(grid), "block": [threads], "shared": shared,
              "params": entries}
    with open(os.path.join(folder, "launch.json"), "w") as file:
        json.dump(launch, file, indent=1)
    result = subprocess.run([LLM_OPT, "sim", os.path.join(folder, "kernel.ptx"), "--launch",
                             os.path.join(folder, "launch.json"), "--orders", "4", "--json"],
                            capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"FAILED: {name}: {result.stderr}")
    counters = json.loads(result.stdout)["counters"]
    print(f"{name}: {counters['lane_instructions']} lane instructions, {counters['mma']} mma, "
          f"{counters['barriers']} barriers")
    return [np.load(os.path.join(folder, key + ".out.npy")) for key in outputs]


def expect(name, got, want, tolerance):
    """Fails unless every element is within its tolerance."""
    error = np.abs(got.astype(np.float64) - want)
    worst = float(np.max(error / tolerance))
    print(f"{name}: worst error {worst:.3f} of the tolerance")
    if not worst <= 1:
        sys.exit(f"FAILED: {name}: {np.count_nonzero(~(error <= tolerance))} elements are wrong")


def test_softmax(arch, random):
    rows, columns = 5, 781
    x = random.standard_normal((rows, columns)).astype(np.float32)
    compiled = compile_ptx(arch, kernels.softmax,
                           {"out": "*fp32", "x": "*fp32", "columns": "i32", "stride": "i32"},
                           {"WIDTH": 1024}, num_warps=4)
    got, = simulate(f"softmax-{arch}", compiled, (rows,),
                    {"out": np.zeros_like(x), "x": x, "columns": columns, "stride": columns},
                    ["out"])
    weights = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    want = weights / weights.sum(axis=1, keepdims=True)
    expect(f"softmax-{arch}", got, want, 2.0 ** -19 * want)


def test_matmul(arch, random):
    rows, columns, depth = 100, 72, 200
    a = random.standard_normal((rows, depth)).astype(np.float16)
    b = random.standard_normal((depth, columns)).astype(np.float16)
    compiled = compile_ptx(arch, kernels.matmul,
                           {"a": "*fp16", "b": "*fp16", "c": "*fp32", "rows": "i32",
                            "columns": "i32", "depth": "i32"},
                           {"ROWS": 64, "COLUMNS": 32, "DEPTH": 32}, num_warps=4, num_stages=3)
    got, = simulate(f"matmul-{arch}", compiled, (-(-rows // 64), -(-columns // 32)),
                    {"a": a, "b": b, "c": np.zeros((rows, columns), np.float32), "rows": rows,
                     "columns": columns, "depth": depth}, ["c"])
    left, right = a.astype(np.float64), b.astype(np.float64)
    expect(f"matmul-{arch}", got, left @ right, depth * 2.0 ** -23 * (np.abs(left) @ np.abs(right)))


def test_matmul_descriptors(arch, random):
    if arch < 90:
        return
    rows, columns, depth = 100, 72, 200
    a = random.standard_normal((rows, depth)).astype(np.float16)
    b = random.standard_normal((depth, columns)).astype(np.float16)
    compiled = compile_ptx(arch, kernels.matmul_descriptors,
                           {"a": "tensordesc<fp16[64,32]>", "b": "tensordesc<fp16[32,64]>",
                            "c": "tensordesc<fp32[64,64]>", "depth": "i32"},
                           {"ROWS": 64, "COLUMNS": 64, "DEPTH": 32}, num_warps=4, num_stages=3)
    got, = simulate(f"descriptors-{arch}", compiled, (-(-rows // 64), -(-columns // 64)),
                    {"a": Described(a), "b": Described(b),
                     "c": Described(np.zeros((rows, columns), np.float32)), "depth": depth}, ["c"])
    left, right = a.astype(np.float64), b.astype(np.float64)
    expect(f"descriptors-{arch}", got, left @ right,
           depth * 2.0 ** -23 * (np.abs(left) @ np.abs(right)))


def test_attention(arch, random):
    heads, length, dim = 2, 150, 64
    q, k, v = (random.standard_normal((heads, length, dim)).astype(np.float16) for _ in range(3))
    scale = float(np.float32(dim ** -0.5 * 1.4426950408889634))
    compiled = compile_ptx(arch, kernels.attention,
                           {"q": "*fp16", "k": "*fp16", "v": "*fp16", "out": "*fp32",
                            "queries": "i32", "keys": "i32", "scale": "fp32"},
                           {"ROWS": 64, "TILE": 32, "DIM": dim}, num_warps=4, num_stages=3)
    got, = simulate(f"attention-{arch}", compiled, (-(-length // 64), heads),
                    {"q": q, "k": k, "v": v, "out": np.zeros((heads, length, dim), np.float32),
                     "queries": length, "keys": length, "scale": scale}, ["out"])
    score = np.einsum("hid,hjd->hij", q.astype(np.float64), k.astype(np.float64)) * scale
    score[:, np.triu(np.ones((length, length), bool), 1)] = -np.inf
    weights = np.exp2(score - score.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    want = weights @ v.astype(np.float64)
    # Weights are rounded to f16 before the product: 2^-11 of each.
    expect(f"attention-{arch}", got, want, 2.0 ** -10 * (weights @ np.abs(v.astype(np.float64))) + 1e-6)


print(f"Triton {triton.__version__}")
for target in ARCHS:
    for test in (test_softmax, test_matmul, test_matmul_descriptors, test_attention):
        test(target, np.random.default_rng(1))
