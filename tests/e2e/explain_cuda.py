"""llm-opt explain --target cuda:sm_NN: registers, spills, instructions of each kernel."""
import json
import os
import re
import sys

from common import check, run

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/specs/")
DECODE = EXAMPLES + "llama-decode-paged.mlir"


def refuse(arguments, message, **environment):
    os.environ.update(environment)
    result = run("explain", *arguments)
    for name in environment:
        del os.environ[name]
    check(result.returncode == 1 and result.stdout == "", f"{arguments}: {result}")
    check(message in result.stderr, f"{arguments}: {result.stderr}")


refuse([DECODE, "--target", "cuda:sm_75"], "llm-opt explain: no numbers for target 'sm_75'; there "
       "are some for sm_80, sm_86, sm_89, sm_90, sm_100, sm_120")
refuse([DECODE, "--target", "gpu"],
       "llm-opt explain: unknown target 'gpu'; cpu and cuda:sm_80 are of the form wanted")
refuse([DECODE, "--target", "cuda:sm_80", "--keys", "100"],
       "llm-opt explain: --keys is for a run, and --target cuda:sm_80 runs nothing")
refuse([DECODE, "--target", "cuda:sm_80", "--device", "sim"],
       "llm-opt explain: --device is for a run, and --target cuda:sm_80 runs nothing")
refuse([DECODE, "--device", "cpu"],
       "llm-opt explain: --device is 'cpu'; sim and sim:ARCH can be explained")
refuse([DECODE, "--device", "nowhere"], "llm-opt explain: unknown device 'nowhere'")
refuse([DECODE, "--target", "cuda:sm_80"], "no NVRTC: the CUDA compiler library was not found",
       LLMOPT_NVRTC="/nowhere/libnvrtc.so.13")
result = run("env", "--json")
if isinstance(json.loads(result.stdout)["nvrtc"], str):  # why there is none
    print("no NVRTC on this machine")
    sys.exit(77)

for arch in ("sm_80", "sm_120"):
    result = run("explain", DECODE, "--target", f"cuda:{arch}", "--json")
    check(result.returncode == 0, result.stderr)
    facts = json.loads(result.stdout)
    check(facts["target"] == f"cuda:{arch}" and len(facts["key"]) == 64, facts)
    check("bytes of shared memory" in facts["schedule"], facts["schedule"])
    kinds = [kernel["kind"] for kernel in facts["kernels"]]
    check(kinds[-3:] == ["attend", "attend", "merge"], kinds)
    for kernel in facts["kernels"]:
        name = f"{arch} {kernel['entry']}"
        check(kernel["spill_store_bytes"] == kernel["spill_load_bytes"] == kernel["stack_bytes"] == 0,
              name)
        check(0 < kernel["registers"] <= kernel["register_budget"] <= 255, name)
        check(kernel["blocks_per_sm"] >= 1 and kernel["blocks_limited_by"], name)
        check(kernel["ptx_bytes"] > 1000 and kernel["cubin_bytes"] > 1000, name)
        check(kernel["warnings"] == [], name)
        for count in ("mma", "ldmatrix", "copies_of_16_bytes"):
            if kernel["kind"] == "attend":
                check(kernel[count]["found"] == kernel[count]["implied"] > 0, f"{name} {count}")
            else:
                check(count not in kernel, name)

result = run("explain", DECODE, "--target", "cuda:sm_90")
check(result.returncode == 0, result.stderr)
for want in ("for cuda:sm_90, compiled in", "schedule: rows 16 (4 slices of keys)", "packed rows x",
             "registers ", "spilled 0 bytes stored and 0 loaded, stack 0 bytes",
             "on a multiprocessor, limited by", " mma, ", "copies of 16 bytes", "of machine code"):
    check(want in result.stdout, f"no '{want}' in {result.stdout}")
# Heads wider than most: they work.
with open("wide.mlir", "w") as file:
    file.write(open(DECODE).read().replace("x128xb", "x320xb"))
result = run("explain", "wide.mlir", "--target", "cuda:sm_80")
check(result.returncode == 0 and "spilled " in result.stdout, result)

# A run in the simulator: what the kernels asked for is what the plan lets expect.
arguments = ("explain", DECODE, "--device", "sim", "--queries", "1", "--keys", "200")
result = run(*arguments, "--json")
check(result.returncode == 0, result.stderr)
facts = json.loads(result.stdout)
figures = facts["figures"]
keys = figures["kv_bytes"]
check(keys["counted"] == keys["predicted"] >= keys["least"] > 0, keys)
# Also where warps share out the keys of a tile, Q is read once.
check(figures["qo_bytes"]["counted"] == figures["qo_bytes"]["predicted"] > 0, figures)
check(figures["kv_bytes_unique"]["counted"] == keys["least"], figures)
# Lanes ask for an entry of a table many times, and it comes once: 13 entries for each sequence.
table = facts["tables"]["block_table"]
check(table["asked"] >= table["unique"] == table["least"] > 0, facts["tables"])
check(table["least"] % 32 == 0 and table["least"] <= 2 * 3 * 32, table)
for name in ("plan.items", "plan.rows", "plan.sequences"):
    check(0 < facts["tables"][name]["unique"] <= facts["tables"][name]["least"], facts["tables"])
tables = figures["table_bytes_unique"]
check(tables["counted"] == sum(each["unique"] for each in facts["tables"].values()), facts)
check(tables["least"] == sum(each["least"] for each in facts["tables"].values()), facts)
check(figures["flops"]["counted"] >= figures["flops"]["least"] > 0, figures)
check(all(kernel["estimate_us"]["time"] >= 0 for kernel in facts["kernels"]), facts)
result = run(*arguments)
for want in ("K and V bytes, each sector once", "sectors once", "\n  block_table  ", "estimate ", "limited by", "warp instr."):
    check(want in result.stdout, f"no '{want}' in {result.stdout}")
# Names of kernels are long: of the place of a line its end is shown.
check(re.search(r"^\.\.\.\w+\.cu:\d+ ", result.stdout, re.MULTILINE), result.stdout)
sys.exit(0)
