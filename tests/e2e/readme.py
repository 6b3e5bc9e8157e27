"""What README.md and docs/using.md show: their specs, scripts and commands, run as they stand there."""
import os
import re
import subprocess
import sys

from common import FOLDER, LLM_OPT, check, read_npy

SOURCE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
TEXT = ""
for page in ("README.md", "docs/using.md"):
    with open(os.path.join(SOURCE, page)) as file:
        TEXT += file.read()

# Scripts use NumPy. Where it is missing, a stand-in with the few functions serves.
environment = dict(os.environ)
if subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode:
    environment["PYTHONPATH"] = os.path.join(SOURCE, "tests/e2e/standin")
if not os.path.exists("examples"):
    os.symlink(os.path.join(SOURCE, "examples"), "examples")

ran = []
for kind, body in re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.M | re.S):
    if kind in ("mlir", "python"):
        name = re.match(r"(?://|#) (\S+)\n", body)
        check(name, f"a block of {kind} does not name its file:\n{body}")
        with open(name[1], "w") as file:
            file.write(body)
        continue
    for line in body.splitlines():
        if not re.match(r"build/bin/|python3 |sed ", line):
            continue
        command = line.replace("build/bin/", os.path.dirname(LLM_OPT) + "/").replace(
            "python3", f"'{sys.executable}'")
        done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
        check(done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}")
        ran.append(line)

for command in ("llm-opt verify", "llm-opt explain", "llm-opt compile", "llm-opt import", "llm-opt run",
                "run-bundle"):
    check(any(line.startswith(f"build/bin/{command} ") for line in ran),
          f"README.md and docs/using.md show no `{command}` any more")


def row(path, *index):
    """The last dimension of an array at an index, and the shape."""
    shape, values = read_npy(path)
    at = 0
    for extent, i in zip(shape, index):
        at = at * extent + i
    return shape, values[at * shape[-1]:(at + 1) * shape[-1]]


# The first query of the dense call sees one key: its output is that key's value.
for name in ("o.npy", "o2.npy"):
    shape, first = row(name, 0, 0, 31)
    _, value = row("v.npy", 0, 0, 7)
    check(tuple(shape) == (1, 600, 32, 64), f"{name}: {shape}")
    check(max(abs(a - b) for a, b in zip(first, value)) < 1e-5, f"{name}: {first[:3]} {value[:3]}")
check(row("o.npy", 0, 90, 0) == row("o2.npy", 0, 90, 0), "a window of 100 holds query 90's keys")
check(row("o.npy", 0, 590, 0) != row("o2.npy", 0, 590, 0), "a window of 100 must matter")
shape, values = read_npy("paged.npy")
check(tuple(shape) == (5, 32, 64) and any(values), f"paged.npy: {shape}")
check(read_npy("bundle.npy") == (shape, values), "a bundle computes what its spec does")
