"""tools/gpu-check --calibrate: runs the kernels of tests/golden on the card and keeps what it
computes, as FOLDER/ARCH/NAME.npy. The test e2e.golden holds the simulator to it."""
import json
import pathlib
import shutil
import tempfile

import gpu_child

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"


# CUDA C++ (the others are PTX for any card), and what it is compiled for: the cards that run it.
CUDA = {"wgmma": "sm_90a"}


def kernels():
    return sorted({path.stem for path in GOLDEN.glob("*.json")})


def runs_on(name, card):
    return name not in CUDA or CUDA[name].rstrip("a") == card


def launch(binary, device, name, folder):
    """Runs one kernel; what it wrote lies in the folder. The failure's text, or nothing."""
    kind, arch = ("cu", ["--arch", CUDA[name]]) if name in CUDA else ("ptx", [])
    for each in (kind, "json"):
        shutil.copy(GOLDEN / f"{name}.{each}", folder)
    return gpu_child.run([binary, "sim", f"{folder}/{name}.{kind}", "--launch",
                          f"{folder}/{name}.json", "--device", device, *arch], 120).reason()


def record(binary, device, folder, env):
    """Exit code: 1 if a kernel did not run."""
    if not env["cuda_devices"]:
        print(f"gpu-check: nothing to calibrate by: {env['cuda_driver']}")
        return 1
    card = env["cuda_devices"][0]
    target = pathlib.Path(folder) / card["arch"]
    target.mkdir(parents=True, exist_ok=True)
    bad = 0
    names = [name for name in kernels() if runs_on(name, card["arch"])]
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            failure = launch(binary, device, name, work)
            if not failure:
                shutil.copy(pathlib.Path(work) / f"{name}.npy", target)
        bad += bool(failure)
        print(f"{'FAILED' if failure else 'ok    '} {name} {failure}", flush=True)
    facts = {"card": card, "driver": env["cuda_driver"], "kernels": names}
    (target / "facts.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(f"{len(names) - bad} recorded, {bad} failed; {target}")
    return 1 if bad else 0
