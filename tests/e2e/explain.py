"""llm-opt explain: tiles, bytes and operations counted, predicted and least."""
import glob
import json
import os
import sys

from common import check, run

SPECS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/specs/*.mlir")
SMALL = """func.func @f(%q: tensor<?x?x2x4xf32>, %k: tensor<?x?x1x4xf32>, %v: tensor<?x?x1x6xf32>)
    -> tensor<?x?x2x6xf32> {
  %o = attn.attention %q, %k, %v mask(causal) schedule(rows = 16, keys = 16) split(none)
       : tensor<?x?x2x4xf32>, tensor<?x?x1x4xf32>, tensor<?x?x1x6xf32> -> tensor<?x?x2x6xf32>
  return %o : tensor<?x?x2x6xf32>
}
"""


def explain(*arguments):
    result = run("explain", *arguments, "--json")
    check(result.returncode == 0, result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]


# By hand: 16 rows are 8 queries of 2 heads. Query tile t sees keys to 8 t + 7: 1, 1, 2 and 2
# tiles of 16, of which 0, 0, 1 and 1 lie before its first query; 8 (query, key tile) pairs.
with open("small.mlir", "w") as file:
    file.write(SMALL)
figures = explain("small.mlir", "--queries", "32", "--keys", "32", "--sequences", "3")[0]
spec = figures["run"]
PAIRS = 32 * 33 // 2
want = {
    "tiles_visited": (6, 6, -(-PAIRS * 2 * 3 // 256) / 3),
    "tiles_full": (2, 2), "tiles_partial": (4, 4), "tiles_empty": (2, 2),
    "flops": (6 * 256 * 20, 6 * 256 * 20, PAIRS * 2 * 20),
    "kv_bytes": (6 * 16 * 40, 6 * 16 * 40, 32 * 40),
    # Keys that some row of the tile may see, counted one by one in partial tiles.
    "kv_bytes_of_rows": (None, (8 + 16 + 24 + 32) * 40, 32 * 40),
    "qo_bytes": (32 * 2 * 40, 32 * 2 * 40, 32 * 2 * 40),
}
for name, columns in want.items():
    for column, value in zip(("counted", "predicted", "least"), columns):
        got = spec[name].get(column)
        check(got == (None if value is None else 3 * value), f"{name}, {column}: {got}")
check(figures["schedule"] == "rows 16 as the spec wishes", figures["schedule"])

# The prediction is made from plan and mask alone; the kernels count as they run.
for path in sorted(glob.glob(SPECS)):
    for shape in ((), ("--queries", "1", "--keys", "3000", "--sequences", "5")):
        for figures in explain(path, *shape):
            if "run" not in figures:
                continue
            spec, name = figures["run"], f"{os.path.basename(path)} {shape}"
            for row in ("tiles_visited", "tiles_full", "tiles_partial", "tiles_empty", "flops",
                        "kv_bytes", "qo_bytes"):
                check(spec[row]["counted"] == spec[row]["predicted"], f"{name}: {row} {spec[row]}")
            for row in ("tiles_visited", "flops", "kv_bytes", "kv_bytes_of_rows", "qo_bytes"):
                check(spec[row]["least"] <= spec[row]["predicted"], f"{name}: {row} {spec[row]}")
            check(spec["kv_bytes_of_rows"]["predicted"] <= spec["kv_bytes"]["predicted"], name)

# A million sequences: as many are run as fit, and the text says so.
result = run("explain", "small.mlir", "--sequences", "1000000")
check(result.returncode == 0, result.stderr)
check("(of 1000000 sequences, all alike)" in result.stdout, result.stdout)
check("tiles empty: skipped" in result.stdout, result.stdout)
# Counted, predicted and least side by side, of K and V and of Q and O.
for label in ("K and V bytes, of whole tiles", "Q, O and partial bytes"):
    line = next(line for line in result.stdout.splitlines() if label in line)
    check("-" not in line and len(line.split(label)[1].split()) == 3, line)
sys.exit(0)
