"""The ONNX conformance cases of Attention: none fails, and those skipped are the list's."""
import json
import os
import sys

from common import check, data, run

folder = data("onnx-attention")
cases = sorted(os.path.join(folder, name) for name in os.listdir(folder)
               if name.startswith("test_attention_"))
check(cases, f"{folder} holds no case")
result = run("conformance", "--json", *cases)
lines = [json.loads(line) for line in result.stdout.splitlines()]
for line in lines:
    if line["result"] == "FAILED":
        print(line["case"], line["detail"])
check(result.returncode == 0, f"exit code {result.returncode}: {result.stderr}")
check({line["result"] for line in lines} <= {"ok", "skipped"}, "a case neither passed nor skipped")
check(len(lines) >= len(cases), f"{len(cases)} folders, {len(lines)} results")

with open(os.path.join(os.path.dirname(__file__), "conformance-skips.txt")) as file:
    want = {line.split(":")[0] for line in file if line.strip() and not line.startswith("#")}
got = {line["case"] for line in lines if line["result"] == "skipped"}
check(got == want, f"skipped but not listed: {sorted(got - want)}; "
                   f"listed but not skipped: {sorted(want - got)}")
print(f"{len(lines) - len(got)} passed, {len(got)} skipped as listed")
sys.exit(0)
