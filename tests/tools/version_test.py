"""The compiler's version: equal for equal trees, another for any change of a source."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CMAKE = sys.argv[1]
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/cmake/CompilerVersion.cmake"


def version(root):
    """kCompilerVersion of the tree."""
    out = root / "out" / "Version.inc"
    subprocess.run([CMAKE, f"-DROOT={root}", "-DFOLDERS=passes;codegen", f"-DOUT={out}", "-P", SCRIPT],
                   check=True)
    return re.fullmatch(r'static constexpr const char \*kCompilerVersion = "([0-9a-f]{64})";\n',
                        out.read_text())[1]


with tempfile.TemporaryDirectory() as folder:
    tree = pathlib.Path(folder, "a")
    for name, text in (("passes/attn/A.cpp", "int a;"), ("codegen/B.td", "def b;"),
                       ("docs/c.md", "c")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    first = version(tree)
    copy = pathlib.Path(folder, "b")
    shutil.copytree(tree, copy)
    assert version(copy) == first, "the place of a tree must not matter"
    (copy / "docs/c.md").write_text("d")
    assert version(copy) == first, "files outside the folders must not matter"
    (copy / "passes/attn/A.cpp").write_text("int b;")
    changed = version(copy)
    assert changed != first, "a changed source must change the version"
    (copy / "passes/attn/A.cpp").write_text("int a;")
    assert version(copy) == first, "the old source must give the old version again"
    (copy / "codegen/B.td").rename(copy / "codegen/C.td")
    assert version(copy) not in (first, changed), "a renamed source must change the version"
