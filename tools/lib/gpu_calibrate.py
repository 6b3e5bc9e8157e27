"""tools/gpu-check --calibrate: runs the kernels of tests/golden on the card and keeps what it
computes, as FOLDER/ARCH/NAME.npy. The test e2e.golden holds the simulator to it."""
import json
import pathlib
import shutil
import subprocess
import tempfile

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"


def kernels():
    return sorted(path.stem for path in GOLDEN.glob("*.ptx"))


def launch(binary, device, name, folder):
    """Runs one kernel; what it wrote lies in the folder. The failure's text, or nothing."""
    for kind in ("ptx", "json"):
        shutil.copy(GOLDEN / f"{name}.{kind}", folder)
    done = subprocess.run([binary, "sim", f"{folder}/{name}.ptx", "--launch",
                           f"{folder}/{name}.json", "--device", device],
                          capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


def record(binary, device, folder, env):
    """Exit code: 1 if a kernel did not run."""
    if not env["cuda_devices"]:
        print(f"gpu-check: nothing to calibrate by: {env['cuda_driver']}")
        return 1
    card = env["cuda_devices"][0]
    target = pathlib.Path(folder) / card["arch"]
    target.mkdir(parents=True, exist_ok=True)
    bad = 0
    for name in kernels():
        with tempfile.TemporaryDirectory() as work:
            failure = launch(binary, device, name, work)
            if not failure:
                shutil.copy(pathlib.Path(work) / f"{name}.npy", target)
        bad += bool(failure)
        print(f"{'FAILED' if failure else 'ok    '} {name} {failure}", flush=True)
    facts = {"card": card, "driver": env["cuda_driver"], "kernels": kernels()}
    (target / "facts.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(f"{len(kernels()) - bad} recorded, {bad} failed; {target}")
    return 1 if bad else 0
