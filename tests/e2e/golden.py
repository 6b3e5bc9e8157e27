"""The kernels of tests/golden on the simulator, beside what cards computed where that was recorded
(tools/gpu-check --calibrate), and the recording itself, on the substitute driver."""
import json
import os
import pathlib
import struct
import subprocess
import sys

from common import LLM_OPT, check, read_npy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "lib"))
import gpu_calibrate

# How far the simulator may be off: the ISA gives approximations 2 units in the last place or so,
# and sums of products an order of their own (the inputs are normal, the sums have up to 64 terms).
ULPS, SUM_ERROR = 4, 4e-5


def ordered(value):
    """A float32 as an integer, neighbours next to each other; all NaN alike."""
    if value != value:
        return None
    bits = struct.unpack("<i", struct.pack("<f", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


def close(name, got, want):
    if name in ("mma", "wgmma"):
        return abs(got - want) <= SUM_ERROR
    if name == "approx":
        a, b = ordered(got), ordered(want)
        return a == b or (a is not None and b is not None and abs(a - b) <= ULPS)
    return got == want


def compare(name, got, want):
    """How many values are not those of the card."""
    check(got[0] == want[0], f"{name}: shapes {got[0]} and {want[0]}")
    return sum(not close(name, a, b) for a, b in zip(got[1], want[1]))


env = json.loads(subprocess.run([LLM_OPT, "env", "--json"], capture_output=True).stdout)
compiles = isinstance(env["nvrtc"], dict)
results = {}
for name in gpu_calibrate.kernels():
    if name in gpu_calibrate.CUDA and not compiles:
        continue
    failure = gpu_calibrate.launch(LLM_OPT, "sim", name, ".")
    check(not failure, failure)
    results[name] = read_npy(f"{name}.npy")
check(len(results) >= 3, results.keys())
check(results["ldmatrix"][1][0] == 0x00010000 and results["ldmatrix"][1][4] == 0x00080000,
      "lane 0 gets the first two elements of a row, or of a column")
if compiles:
    tile = len(results["wgmma"][1]) // 4
    layouts = [results["wgmma"][1][i * tile:][:tile] for i in range(4)]
    check(max(map(abs, layouts[0])) > 10, "sums of 64 products")
    check(all(close("wgmma", a, b) for other in layouts[1:] for a, b in zip(layouts[0], other)),
          "the layouts of shared memory differ in what is computed")

# The recording, with the simulator as the card: the same bits.
for arch, numbers in [("sm_80", ""), ("sm_90", "major=9,minor=0")][:1 + compiles]:
    os.environ["FAKE_CUDA_SET"] = numbers
    env = json.loads(subprocess.run([LLM_OPT, "env", "--json"], capture_output=True).stdout)
    check(gpu_calibrate.record(LLM_OPT, "cuda", "recorded", env) == 0, "kernels on the driver")
    names = json.load(open(f"recorded/{arch}/facts.json"))["kernels"]
    check(("wgmma" in names) == (arch == "sm_90") and len(names) >= 3, f"{arch}: {names}")
    for name in names:
        recorded = read_npy(f"recorded/{arch}/{name}.npy")
        check([struct.pack("<d", x) for x in recorded[1]] ==
              [struct.pack("<d", x) for x in results[name][1]],
              f"{name} differs between sim and the driver")
del os.environ["FAKE_CUDA_SET"]
wrong = (results["approx"][0], [x * 0.99 for x in results["approx"][1]])
check(compare("approx", results["approx"], wrong) > 1000, "a wrong card would be noticed")

# What cards computed.
cards = sorted((ROOT / "tests" / "golden" / "recorded").glob("*/facts.json"))
for facts in cards:
    for name, got in results.items():
        if (facts.parent / f"{name}.npy").exists():
            off = compare(name, got, read_npy(str(facts.parent / f"{name}.npy")))
            check(off == 0, f"{name}: {off} values are not those of {facts.parent.name}")
print(f"{len(results)} kernels, held against {len(cards)} cards")
