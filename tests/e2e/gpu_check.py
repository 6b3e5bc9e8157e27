"""tools/gpu-check on the CPU, and whole on the substitute driver: what it runs, what it writes, and
that a failure is one."""
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
done = gpu_check("--binary", LLM_OPT, "--device", "cpu", "--small", "--out", "good", *specs)
check(done.returncode == 0, done.stdout + done.stderr)
with open("good/gpu-check.json") as file:
    report = json.load(file)
check([row["spec"] for row in report["verify"]] == ["merge-partials", "cross-ragged"], report)
for row in report["verify"]:
    check(row["ok"] and row["cases"] == 2 and row["failed"] == 0 and float(row["worst"]) < 1, row)
check(not report["substitute"] and all(row["ok"] for row in report["bench"]), report["bench"])
check("llm-opt" in report["env"], report["env"])
with open("good/gpu-check.md") as file:
    check("| cross-ragged | True |" in file.read(), "the table names the spec")

# The whole of it on the substitute driver, which says what it is.
if isinstance(report["env"]["nvrtc"], dict):
    done = gpu_check("--binary", LLM_OPT, "--small", "--out", "whole")
    check(done.returncode == 0, done.stdout + done.stderr)
    with open("whole/gpu-check.json") as file:
        report = json.load(file)
    names = sorted(path.stem for path in SPECS.glob("*.mlir"))
    for part in ("verify", "graph"):
        check([row["spec"] for row in report[part]] == names, report[part])
        check(all(row["ok"] and row["cases"] for row in report[part]), report[part])
    check(len(report["bench"]) == 5 and all(row["ok"] and row["ms"] > 0 for row in report["bench"]),
          report["bench"])
    check(report["substitute"] and not report["sanitizer"] and not report["skipped"], report)
    check(set(report["peers"]["found"]) >= {"torch", "flash_attn", "flashinfer"}, report["peers"])
    with open("whole/gpu-check.md") as file:
        text = file.read()
    # What a mark could apply to, then prefill, then the rest.
    check([row.get("graph") for row in report["bench"]] == [None, False, True, False, True],
          report["bench"])
    for part in ("This is the substitute driver", "times and rates mean nothing",
                 "matmul rate was not measured, which takes torch",
                 "| decode batch 2, keys 40, page 16, graph True |", "no mark applies", "- torch: "):
        check(part in text, f"the report lacks '{part}'")

# A kernel that is wrong, or does not run, is a failure.
os.environ["FAKE_CUDA_FAIL"] = "cuLaunchKernel=719"
done = gpu_check("--binary", LLM_OPT, "--small", "--out", "lost", *specs[:2])
del os.environ["FAKE_CUDA_FAIL"]
check(done.returncode == 1 and "FAILED verify merge-partials" in done.stdout, done.stdout)
with open("lost/gpu-check.json") as file:
    lost = json.load(file)["bench"]
check(len(lost) in (1, 3) and not any(row["ok"] for row in lost), lost)  # 1: no driver either

# No driver: every spec fails with the reason, and so does the whole.
os.environ["LLMOPT_CUDA_LIBRARY"] = "/nowhere/libcuda.so.1"
done = gpu_check("--binary", LLM_OPT, "--out", "bad", *specs)
check(done.returncode == 1 and "no CUDA driver" in done.stdout, done.stdout + done.stderr)
with open("bad/gpu-check.json") as file:
    bad = json.load(file)["bench"]
check(len(bad) == 1 and "no CUDA driver" in bad[0]["reason"], bad)
done = gpu_check("--binary", "/nowhere/llm-opt")
check(done.returncode == 1 and "no llm-opt binary" in done.stderr, done.stderr)

# Mistakes: one line, before anything runs.
for arguments, message in (
        (["--binary", "/bin/echo"], "'/bin/echo env --json' prints no report; name an llm-opt with "
         "--binary"),
        (["--binary", LLM_OPT, "--spec", "absent.mlir"], "no spec file 'absent.mlir'"),
        (["--binary", LLM_OPT, "--out", "/dev/null/x"],
         "the folder '/dev/null/x' cannot be made: Not a directory"),
        (["--binary", LLM_OPT, "--seconds", "soon"],
         "argument --seconds: invalid float value: 'soon'"),
        (["--nope"], "unrecognized arguments: --nope")):
    done = gpu_check("--device", "cpu", *arguments)
    check((done.returncode, done.stdout, done.stderr) == (1, "", f"gpu-check: {message}\n"), done)
print("gpu-check: two specs verified, failures told")
