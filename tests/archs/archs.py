"""Every example spec on the simulator, as compiled for each architecture: `verify --cases hard` once
for each PTX that differs in more than the names of architecture and version.

    archs.py LLM-OPT [--compare] [--jobs N] [--spec NAME]... [--arch sm_80]...

`--compare` only prints which architectures share their PTX.
Without NVRTC the exit code is 77.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import time

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
SPECS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "specs"

parser = argparse.ArgumentParser()
parser.add_argument("llm_opt")
parser.add_argument("--compare", action="store_true")
parser.add_argument("--jobs", type=int, default=1)
parser.add_argument("--spec", action="append", default=[])
parser.add_argument("--arch", action="append", choices=ARCHS, default=[])
options = parser.parse_args()


def llm_opt(*arguments):
    return subprocess.run([options.llm_opt, *map(str, arguments)], capture_output=True, text=True)


def ptx_of(spec, arch):
    """The PTX of a spec's kernels, without what names the architecture: kernels' keys do, too."""
    done = llm_opt("compile", SPECS / f"{spec}.mlir", "--target", f"cuda:{arch}", "--emit", "ptx")
    if done.returncode:
        sys.exit(f"FAILED: {spec} for {arch}: {done.stderr}")
    lines = done.stdout.splitlines()
    if not any(line.startswith(".target") for line in lines):
        sys.exit(f"FAILED: {spec} for {arch}: no PTX")
    text = "\n".join(line for line in lines if not line.startswith((".version", ".target", "//")))
    return re.sub(r"_[0-9a-f]{8}(?![0-9a-f])", "_KEY", text)


def groups_of(spec):
    """Architectures by what their PTX is, in the order of ARCHS."""
    groups = {}
    for arch in options.arch or ARCHS:
        groups.setdefault(ptx_of(spec, arch), []).append(arch)
    return list(groups.values())


def verify(spec, arch):
    """One line of what came of it; raises where a case failed."""
    begin = time.monotonic()
    done = llm_opt("verify", SPECS / f"{spec}.mlir", "--device", f"sim:{arch}", "--cases", "hard")
    if done.returncode:
        raise RuntimeError(f"{spec} for {arch}:\n{done.stdout}{done.stderr}")
    return f"{spec} {arch}: {done.stdout.splitlines()[-1]} ({time.monotonic() - begin:.0f} s)"


if not isinstance(json.loads(llm_opt("env", "--json").stdout)["nvrtc"], dict):
    print("no NVRTC")
    sys.exit(77)
specs = options.spec or sorted(path.stem for path in SPECS.glob("*.mlir"))
groups = {spec: groups_of(spec) for spec in specs}
for spec, own in groups.items():
    print(f"{spec}: " + " | ".join(" ".join(group) for group in own), flush=True)
if options.compare:
    sys.exit(0)
work = [(spec, group[0]) for spec, own in groups.items() for group in own]
with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
    tasks = [pool.submit(verify, *one) for one in work]
    failed = 0
    for task in concurrent.futures.as_completed(tasks):
        if task.exception():
            failed += 1
            print(f"FAILED: {task.exception()}", flush=True)
        else:
            print(task.result(), flush=True)
print(f"{len(work) - failed} of {len(work)} verified")
sys.exit(1 if failed else 0)
