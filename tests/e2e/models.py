"""Real models' configurations: imported, compiled and held against the oracle."""
import os

from common import check, data, run

MODELS = ["mistral-7b-v0.1", "llama-3.1-8b", "qwen2.5-7b-instruct", "gemma-2-9b", "falcon-7b",
          "phi-2"]

folder = data("models")
for model in MODELS:
    imported = run("import", os.path.join(folder, model + ".json"))
    check(imported.returncode == 0, f"{model}: {imported.stderr}")
    verified = run("verify", "-", "--count", "4", text=imported.stdout)
    check(verified.returncode == 0, f"{model}: {verified.stdout}{verified.stderr}")
    summary = verified.stdout.splitlines()[-1]
    functions = imported.stdout.count("func.func @")
    check(summary == f"{4 * functions} passed, 0 failed", f"{model}: {summary}")
    print(f"{model}: {functions} functions, {summary}")
