"""tools/gpu-check on the CPU: what it runs, what it writes, and that a failure is one."""
import json
import os
import pathlib
import subprocess
import sys

from common import LLM_OPT, check

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPECS = ROOT / "examples" / "specs"


def gpu_check(*arguments):
    return subprocess.run([sys.executable, "-B", str(ROOT / "tools" / "gpu-check"), *arguments],
                          capture_output=True, text=True)


specs = [part for name in ("merge-partials", "cross-ragged")
         for part in ("--spec", str(SPECS / f"{name}.mlir"))]
done = gpu_check("--binary", LLM_OPT, "--device", "cpu", "--out", "good", *specs)
check(done.returncode == 0, done.stdout + done.stderr)
with open("good/gpu-check.json") as file:
    report = json.load(file)
check([row["spec"] for row in report["verify"]] == ["merge-partials", "cross-ragged"], report)
for row in report["verify"]:
    check(row["ok"] and row["cases"] > 20 and row["failed"] == 0 and row["worst"] < 1, row)
check("llm-opt" in report["env"], report["env"])
with open("good/gpu-check.md") as file:
    check("| cross-ragged | True |" in file.read(), "the table names the spec")

# No driver: every spec fails with the reason, and so does the whole.
os.environ["LLMOPT_CUDA_LIBRARY"] = "/nowhere/libcuda.so.1"
done = gpu_check("--binary", LLM_OPT, "--out", "bad", *specs)
check(done.returncode == 1 and "no CUDA driver" in done.stdout, done.stdout + done.stderr)
done = gpu_check("--binary", "/nowhere/llm-opt")
check(done.returncode == 1 and "no llm-opt binary" in done.stderr, done.stderr)
print("gpu-check: two specs verified, failures told")
