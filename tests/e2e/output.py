"""--json of the commands whose other output is text or files: one object, nothing else on stdout."""
import json
import os

from common import SPEC, check, run

with open("f.mlir", "w") as file:
    file.write(SPEC)
with open("two.mlir", "w") as file:
    file.write(SPEC + SPEC.replace("@f", "@g"))
with open("wrong.mlir", "w") as file:
    file.write(SPEC.replace("window<3>", "window<-3>"))


def facts(*arguments):
    """The object that a command prints."""
    done = run(*arguments, "--json")
    check(done.returncode == 0 and not done.stderr, f"{arguments}: {done.stderr}")
    check(done.stdout.count("\n") == 1, f"{arguments}: one line")
    return json.loads(done.stdout)


def refused(message, *arguments, files=()):
    """A failure prints no object, and leaves no file."""
    done = run(*arguments, "--json")
    check(done.returncode == 1 and not done.stdout, f"{arguments}: {done.stdout}")
    check(message in done.stderr, f"{arguments}: {done.stderr}")
    check(not any(os.path.exists(file) for file in files), f"{arguments} wrote {files}")


# compile: text goes into the object, or into the file that the object names.
got = facts("compile", "two.mlir", "--emit", "tile")
text = run("compile", "two.mlir", "--emit", "tile").stdout
check(got == {"target": "cpu", "emit": "tile", "specs": ["f", "g"], "files": [], "text": text}, got)
got = facts("compile", "two.mlir", "--emit", "asm", "--func", "g", "-o", "g.s")
check(got == {"target": "cpu", "emit": "asm", "specs": ["g"],
              "files": [{"file": "g.s", "bytes": os.path.getsize("g.s")}]}, got)
got = facts("compile", "f.mlir", "-o", "f.bundle", "--dump-dir", "stages")
names = ["stages/" + name + ".txt" for name in ("asm", "ir", "llvm", "tile", "vector")]
check([item["file"] for item in got["files"]] == [*names, "f.bundle"], got)
check(all(item["bytes"] == os.path.getsize(item["file"]) for item in got["files"]), got)
check(len(got["key"]) == 64 and got["kernels"] and "text" not in got, got)
explained = json.loads(run("explain", "f.mlir", "--queries", "1", "--keys", "1", "--json").stdout)
check(got["key"] == explained["key"], "the key is that of explain")
check(got["kernels"] == [kernel["entry"] for kernel in explained["kernels"]], got["kernels"])
refused("unknown target 'tpu'", "compile", "f.mlir", "--target", "tpu")
refused("window", "compile", "wrong.mlir", "-o", "wrong.bundle", files=["wrong.bundle"])
refused("none/f.txt", "compile", "f.mlir", "--emit", "ir", "-o", "none/f.txt")

# opt: the same, and the result is that without --json.
PASS = "--pass-pipeline=builtin.module(attn-to-tile{rows=8 keys=16})"
text = run("opt", "f.mlir", PASS).stdout
check("tile.mma" in text, text)
check(facts("opt", "f.mlir", PASS) == {"file": "f.mlir", "ir": text}, "opt --json")
got = facts("opt", "f.mlir", PASS, "-o", "f.tile")
check(got == {"file": "f.mlir", "output": "f.tile", "bytes": len(text)}, got)
with open("f.tile") as file:
    check(file.read() == text, "opt -o")
refused("absent.mlir", "opt", "absent.mlir")
refused("window", "opt", "wrong.mlir", "-o", "wrong.tile", files=["wrong.tile"])
refused("cannot open output file 'none/f.tile'", "opt", "f.mlir", "-o", "none/f.tile")
refused("rows", "opt", "f.mlir", "--pass-pipeline=builtin.module(attn-to-tile{rows=0})")

# fuzz counts what became of its specs.
got = facts("fuzz", "--device", "cpu", "--seed", "3", "--count", "3", "--shapes", "2")
check(got["passed"] + sum(got["refused"].values()) == 3 and got["failed"] == 0, got)
check(got["cases"] == 2 * got["passed"], got)
refused("--count: 0 was given; 1 or more is wanted", "fuzz", "--count", "0")

# demo: shares of the CPU's limits, and what the import had to say.
with open("model.json", "w") as file:
    json.dump({"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1,
               "sliding_window": 16}, file)
done = run("demo", "model.json", "--device", "cpu", "--json")
check(done.returncode == 0, done.stderr)
check("model.json: note: the config names no element type; bf16 is taken\n" in done.stderr,
      done.stderr)
rows = [json.loads(line) for line in done.stdout.splitlines()]
check(len(rows) == 2 and all(row["share"] > 0 and row["limit"] for row in rows), rows)
