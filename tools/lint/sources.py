"""What the lint scripts share: which files belong to the project, and how to report."""

import argparse
import os
import pathlib
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def arguments(description):
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=PROJECT,
                        help="the tree to look at (default: this project)")
    return parser.parse_args()


def project_files(root):
    """Files of the tree that git tracks or would track, as paths relative to root. A
    tree without git (an unpacked archive) is walked, without build and hidden folders."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True) if (root / ".git").exists() else None
    if listed and listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith((".git", "build", "__pycache__"))]
            names += [os.path.relpath(os.path.join(folder, file), root) for file in files]
    paths = sorted(set(map(pathlib.PurePosixPath, names)))
    return [path for path in paths if (root / path).is_file() and not (root / path).is_symlink()]


def read_text(path):
    """The file's text, or None for a binary file."""
    data = path.read_bytes()
    return None if b"\0" in data else data.decode("utf-8", errors="replace")


def finish(name, problems, good):
    """Prints the problems (path:line: text) and ends with 1, or prints `good`."""
    for problem in problems:
        print(problem)
    if problems:
        print(f"{name}: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
        sys.exit(1)
    print(f"{name}: {good}")
