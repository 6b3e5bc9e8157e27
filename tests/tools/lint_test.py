"""Each lint script on small trees: one that is fine, and one for every offence."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

LINT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "lint"


class LintCase(unittest.TestCase):
    script = ""

    def run_on(self, files, executable=()):
        """Runs the script on a tree of {path: text}; returns (exit code, output)."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                path.chmod(0o755 if name in executable else 0o644)
            done = subprocess.run([LINT / self.script, "--root", folder],
                                  capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def accepts(self, files, **options):
        code, output = self.run_on(files, **options)
        self.assertEqual(code, 0, output)

    def refuses(self, files, *expected, **options):
        code, output = self.run_on(files, **options)
        self.assertEqual(code, 1, output)
        for text in expected:
            self.assertIn(text, output)


class Layers(LintCase):
    script = "check-layers"

    def include(self, path, target):
        line = target if target[0] in "<\"" else f'"{target}"'
        return {path: f"#include <vector>\n#include {line}\n"}

    def test_allowed(self):
        for path, target in (
                ("dialect/attn/AttnOps.cpp", "dialect/attn/AttnOps.h.inc"),
                ("dialect/attn/AttnOps.cpp", "mlir/IR/Builders.h"),
                ("dialect/reference/Oracle.cpp", "dialect/attn/AttnOps.h"),
                ("passes/attn/PackGqa.cpp", "runtime/target/Target.h"),
                ("passes/attn/PackGqa.cpp", "llvm/ADT/APInt.h"),
                ("codegen/cpu/Lower.cpp", "runtime/bundle/Program.h"),
                ("codegen/cpu/Lower.cpp", "passes/Passes.h"),
                ("codegen/cuda/nvrtc/Nvrtc.cpp", "runtime/base/DynamicLibrary.h"),
                ("runtime/plan/Planner.cpp", "runtime/bundle/WorkItem.h"),
                ("runtime/plan/Planner.cpp", "<fmt/format.h>"),
                ("runtime/bundle/BundleIO.cpp", "runtime/base/Status.h"),
                ("tools/llm-opt/Main.cpp", "dialect/reference/Oracle.h"),
                ("tests/unit/a/B.cpp", "codegen/compile/Compile.h")):
            with self.subTest(path=path, target=target):
                self.accepts(self.include(path, target))

    def test_forbidden(self):
        for path, target in (
                ("dialect/attn/AttnOps.cpp", "passes/Passes.h"),
                ("dialect/attn/AttnOps.cpp", "runtime/bundle/Bounds.h"),
                ("dialect/attn/AttnOps.cpp", "dialect/reference/Oracle.h"),
                ("dialect/attn/AttnOps.cpp", "<fmt/format.h>"),
                ("dialect/attn/AttnOps.cpp", "AttnOps.h.inc"),
                ("dialect/reference/Oracle.cpp", "passes/Passes.h"),
                ("passes/attn/PackGqa.cpp", "codegen/compile/Compile.h"),
                ("passes/attn/PackGqa.cpp", "dialect/reference/Oracle.h"),
                ("passes/attn/PackGqa.cpp", "runtime/plan/Planner.h"),
                ("codegen/cpu/Lower.cpp", "runtime/device/Device.h"),
                ("codegen/cpu/Lower.cpp", "dialect/reference/Oracle.h"),
                ("codegen/cpu/Lower.cpp", "tools/llm-opt/Cli.h"),
                ("codegen/cuda/device/mma.cuh", "<cuda_fp16.h>"),
                ("codegen/cuda/nvrtc/Nvrtc.cpp", "llvm/Support/Error.h"),
                ("runtime/plan/Planner.cpp", "mlir/IR/Builders.h"),
                ("runtime/plan/Planner.cpp", "<llvm/ADT/APInt.h>"),
                ("runtime/plan/Planner.cpp", "dialect/attn/AttnOps.h"),
                ("runtime/plan/Planner.cpp", "codegen/compile/Compile.h"),
                ("runtime/bundle/BundleIO.cpp", "runtime/base/Log.h"),
                ("runtime/bundle/BundleIO.cpp", "<fmt/format.h>"),
                ("runtime/target/Target.h", "runtime/plan/Planner.h")):
            with self.subTest(path=path, target=target):
                self.refuses(self.include(path, target), f"{path}:2: includes ")

    def test_tablegen_includes_count(self):
        self.refuses({"dialect/attn/AttnOps.td": 'include "passes/Passes.td"\n'}, "AttnOps.td:1:")


class Sizes(LintCase):
    script = "check-sizes"
    ledger = "tools/lint/size-ledger.txt"

    def test_500_lines_are_fine_501_are_not(self):
        self.accepts({"a.cpp": "\n" * 500})
        self.refuses({"a.cpp": "\n" * 501}, "a.cpp:501: 501 lines, allowed are 500")

    def test_scripts_count(self):
        self.refuses({"tools/x": "#!/bin/sh\n" + "\n" * 500}, "tools/x:501")

    def test_ledger_allows_up_to_its_limit(self):
        entry = {self.ledger: "# comment\na.cpp 600 one big table\n"}
        self.accepts({"a.cpp": "\n" * 600, **entry})
        self.refuses({"a.cpp": "\n" * 601, **entry}, "601 lines, allowed are 600")

    def test_stale_entries(self):
        entry = {self.ledger: "a.cpp 600 one big table\n"}
        self.refuses(entry, "stale: there is no source file a.cpp")
        self.refuses({"a.cpp": "\n" * 500, **entry}, "stale: a.cpp has 500 lines")

    def test_malformed_entries(self):
        source = {"a.cpp": "\n" * 501}
        self.refuses({self.ledger: "a.cpp 600\n", **source}, "not of the form")
        self.refuses({self.ledger: "a.cpp many reason\n", **source}, "not of the form")
        self.refuses({self.ledger: "a.cpp 2000 reason\n", **source}, "at most 1000")
        self.refuses({self.ledger: "a.cpp 600 r\na.cpp 700 r\n", **source}, "second entry")


class Words(LintCase):
    script = "check-words"

    def test_plain_text(self):
        self.accepts({"a.cpp": "// A pending store; /usr/lib is a system folder.\n",
                      "b.md": "see https://example.org/" "home/page and ../" "work/x\n",
                      "tools/c": "#!/bin/sh\nmktemp -d llmopt.XXXXXX\n"}, executable=["tools/c"])

    def test_unfinished(self):
        for words in ("TO" "DO: later", "FIX" "ME", "X" "XX", "a st" "ub", "Not Imple" "mented"):
            with self.subTest(words=words):
                self.refuses({"a.cpp": f"int a;\n// {words}\n"}, "a.cpp:2:")
                self.refuses({"tools/a": f"#!/bin/sh\n# {words}\n"}, "tools/a:2:",
                             executable=["tools/a"])

    def test_machine_paths(self):
        for folder in ("home/ann", "root/x", "Users/ann", "work/main"):
            for line in ('"/{}/a"', "cd /{}", "see (/{})", "A=/{}"):
                with self.subTest(folder=folder, line=line):
                    self.refuses({"README.md": line.format(folder) + "\n"}, "README.md:1:")

    def test_run_bits(self):
        self.refuses({"tools/a": "#!/bin/sh\n"}, "without run bit")
        self.refuses({"a.h": "int a;\n"}, "is no script", executable=["a.h"])

    def test_run_bit_that_git_does_not_record(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "a")
            script.write_text("#!/bin/sh\n")
            script.chmod(0o644)
            git = ["git", "-C", folder]
            subprocess.run([*git, "init", "-q"], check=True)
            subprocess.run([*git, "add", "a"], check=True)
            script.chmod(0o755)
            done = subprocess.run([LINT / self.script, "--root", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("without run bit", done.stdout)


class Codes(LintCase):
    script = "check-codes"
    tree = {"a.h": "enum class Code : uint8_t {\n  Ok, // fine, \n  Bad = 3,\n};\n",
            "tests/unit/T.cpp": "TEST_F(Suite, Case) {}\n", "tests/e2e/run.py": "\n"}
    head = "# Codes\n\n## `Code` in `a.h`\n\n| code | test |\n| --- | --- |\n"

    def table(self, *rows):
        return {"docs/status-codes.md": self.head + "".join(f"| {row} |\n" for row in rows)}

    def test_a_row_with_a_test_for_each_code(self):
        self.accepts({**self.tree, **self.table("`Ok` | `Suite.Case`", "`Bad`, it says | `e2e.run`")})

    def test_a_code_without_a_row(self):
        self.refuses({**self.tree, **self.table("`Ok` | `Suite.Case`")}, "Code's 'Bad' has no row")

    def test_a_row_without_a_code(self):
        self.refuses({**self.tree, **self.table("`Ok` | `Suite.Case`", "`Bad` | `Suite.Case`",
                                                "`Old` | `Suite.Case`")}, "'Old' is no code")

    def test_a_test_that_is_not_there(self):
        self.refuses({**self.tree, **self.table("`Ok` | `Suite.Gone`", "`Bad` | `e2e.run`")},
                     "md:7: there is no test 'Suite.Gone'")
        self.refuses({**self.tree, **self.table("`Ok` | by hand", "`Bad` | `e2e.run`")},
                     "md:7: the row names no test")

    def test_an_enum_that_is_not_there(self):
        self.refuses({**self.tree, "docs/status-codes.md": "## `Gone` in `a.h`\n"}, "no enum 'Gone'")
        self.refuses(self.tree, "the file is missing")

    def test_an_enum_of_answers_without_a_section(self):
        good = self.table("`Ok`, `Bad` | `Suite.*`")
        more = "enum class {} : uint8_t {{ No }};\n"
        self.accepts({**self.tree, **good, "runtime/b.h": more.format("Phase")})
        for name in ("HaltReason", "LinkStatus", "llmopt_code"):
            self.refuses({**self.tree, **good, "runtime/b.h": more.format(name)},
                         f"runtime/b.h:1: the codes of '{name}' have no section")

    def test_tables_of_designs(self):
        design = "| what | test (all here) |\n| --- | --- |\n| it fails | `Suite.{}` |\n"
        good = self.table("`Ok`, `Bad` | `Suite.*`")
        self.accepts({**self.tree, **good, "docs/design/x.md": design.format("Case")})
        self.refuses({**self.tree, **good, "docs/design/x.md": design.format("Gone")},
                     "docs/design/x.md:3: there is no test 'Suite.Gone'")


class Errors(LintCase):
    script = "check-errors"
    SOURCE = """LogicalResult f(Op op) {
  if (op.a)
    return op.emitOpError() << "is " << op.a
                            << "; a thing of that "
                               "kind is wanted";
  return op.emitError("short; yes");
}
"""
    TEST = "// expected-error {{is 3; a thing of that kind is wanted}}\n// error: short; yes\n"
    LEDGER = "tools/lint/untested-errors.txt"

    def test_expected_messages(self):
        self.accepts({"dialect/a/F.cpp": self.SOURCE, "tests/lit/a.mlir": self.TEST})
        self.accepts({"tools/F.cpp": self.SOURCE})

    def test_a_message_that_no_test_expects(self):
        self.refuses({"passes/a/F.cpp": self.SOURCE, "tests/lit/a.mlir": "// short; yes"},
                     "passes/a/F.cpp:3: no test expects '; a thing of that kind is wanted'")
        self.refuses({"codegen/F.cpp": self.SOURCE}, "2 problems")

    def test_a_message_in_a_test_s_literals(self):
        self.accepts({"codegen/F.cpp": self.SOURCE, "tests/unit/F.cpp":
                      'EXPECT_EQ(f(),\n  "is 3; a thing "\n  "of that kind is wanted");\n"short; yes"'})

    def test_the_ledger(self):
        line = '"; a thing of that kind is wanted" nothing is a thing\n'
        files = {"dialect/a/F.cpp": self.SOURCE, "tests/a": "short; yes"}
        self.accepts({**files, self.LEDGER: "# head\n" + line})
        self.refuses({**files, self.LEDGER: '"; a thing of that kind is wanted"\n'},
                     '"LITERAL" REASON is wanted')
        self.refuses({**files, "tests/b": self.TEST, self.LEDGER: line}, "needs no line here")


class Format(LintCase):
    script = "check-format"
    style = {".clang-format": "BasedOnStyle: LLVM\n"}

    @unittest.skipUnless(shutil.which("clang-format-22"), "clang-format-22 is not installed")
    def test_accepts_and_refuses(self):
        self.accepts({"a.cpp": "int a = 1;\n", **self.style})
        self.refuses({"a.cpp": "int   a=1;\n", **self.style}, "a.cpp:1:", "check-format --fix")

    def test_without_the_formatter_it_is_skipped(self):
        with tempfile.TemporaryDirectory() as folder:
            for tool in ("bash", "env", "dirname"):
                os.symlink(shutil.which(tool), pathlib.Path(folder, tool))
            done = subprocess.run([LINT / self.script], env={"PATH": folder}, capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 77, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
