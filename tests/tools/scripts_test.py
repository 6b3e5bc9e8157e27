"""The scripts under tools/, run with stand-ins for apt, cmake and ctest in PATH."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PLAIN_TOOLS = ("awk", "basename", "bash", "cat", "dirname", "env", "grep", "mkdir", "mktemp",
               "nproc", "rm", "sh", "sleep", "tail")


class ScriptCase(unittest.TestCase):
    """A copy of tools/ in a folder of its own, and a PATH with nothing but plain tools
    and what the test adds."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "project")
        self.bin = pathlib.Path(folder.name, "bin")
        self.bin.mkdir()
        shutil.copytree(PROJECT / "tools", self.root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        for tool in PLAIN_TOOLS:
            os.symlink(shutil.which(tool), self.bin / tool)
        os.symlink(sys.executable, self.bin / "python3")

    def fake(self, name, body):
        """Puts a bash script called `name` into PATH; each call is noted in self.calls()."""
        path = self.bin / name
        log = f'echo "{name} $*" >>"{self.root}/calls"\n'
        path.write_text("#!/usr/bin/env bash\n" + log + textwrap.dedent(body))
        path.chmod(0o755)

    def calls(self):
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def run_script(self, script, *arguments, **environment):
        done = subprocess.run([self.root / script, *arguments], capture_output=True, text=True,
                              env={"PATH": str(self.bin), "HOME": str(self.root),
                                   "LLMOPT_RETRY_DELAY": "0", **environment})
        return done.returncode, done.stdout, done.stderr

    def check_help(self, script):
        code, out, err = self.run_script(script, "--help")
        self.assertEqual((code, err), (0, ""))
        self.assertTrue(out.startswith("usage: "), out)


class InstallDeps(ScriptCase):
    script = "tools/install-deps"

    def machine(self, missing=(), user=0, apt="exit 0", offered="echo Package: x"):
        """A Debian where the given packages are missing until `installed` exists."""
        self.fake("id", f"echo {user}")
        self.fake("dpkg-query", f"""
            for last; do :; done
            [[ " {' '.join(missing)} " == *" $last "* && ! -e "{self.root}/installed" ]] && exit 1
            echo installed""")
        self.fake("apt-get", apt)
        self.fake("apt-cache", offered)

    def apt_calls(self):
        return [call for call in self.calls() if call.startswith("apt-get")]

    def test_help_and_unknown_argument(self):
        self.check_help(self.script)
        code, _, err = self.run_script(self.script, "--chekc")
        self.assertEqual(code, 1)
        self.assertIn("unknown argument '--chekc'", err)

    def test_silent_when_all_is_there(self):
        self.machine()
        self.assertEqual(self.run_script(self.script), (0, "", ""))
        self.assertEqual(self.run_script(self.script, "--check"), (0, "", ""))
        self.assertEqual(self.apt_calls(), [])

    def test_check_names_the_missing_and_installs_nothing(self):
        self.machine(missing=["libmlir-22-dev", "libfmt-dev"])
        code, _, err = self.run_script(self.script, "--check")
        self.assertEqual(code, 1)
        self.assertIn("missing packages: libmlir-22-dev libfmt-dev", err)
        self.assertEqual(self.apt_calls(), [])

    def test_installs_only_the_missing(self):
        self.machine(missing=["libfmt-dev"],
                     apt=f'[[ "$*" == *" install "* ]] && touch "{self.root}/installed"; exit 0')
        os.symlink(shutil.which("touch"), self.bin / "touch")
        code, out, _ = self.run_script(self.script)
        self.assertEqual((code, out), (0, ""))
        update, install = self.apt_calls()
        self.assertTrue(update.endswith(" update"), update)
        self.assertTrue(install.endswith(" install -y --no-install-recommends libfmt-dev"), install)

    def test_tries_twice_then_names_the_package(self):
        self.machine(missing=["libfmt-dev"],
                     apt='[[ "$*" == *" install "* ]] && echo mirror is away && exit 100; exit 0')
        code, _, err = self.run_script(self.script)
        self.assertEqual(code, 1)
        self.assertIn("mirror is away", err)
        self.assertIn("failed twice; still missing: libfmt-dev", err)
        self.assertEqual(len(self.apt_calls()), 3)

    def test_a_failed_update_is_tried_twice_and_names_the_package(self):
        self.machine(missing=["libfmt-dev"], apt="exit 100")
        code, _, err = self.run_script(self.script)
        self.assertEqual(code, 1)
        self.assertIn("apt-get update failed twice; missing packages: libfmt-dev", err)
        self.assertEqual(len(self.apt_calls()), 2)

    def test_package_that_apt_does_not_offer(self):
        self.machine(missing=["libfmt-dev", "libmlir-22-dev"],
                     offered='for last; do :; done; [[ $last == libfmt-dev ]] && echo "Package: $last"')
        code, _, err = self.run_script(self.script)
        self.assertEqual(code, 1)
        self.assertIn("apt offers no package libmlir-22-dev;", err)

    def test_success_without_the_package_is_a_failure(self):
        self.machine(missing=["libfmt-dev"])
        code, _, err = self.run_script(self.script)
        self.assertEqual(code, 1)
        self.assertIn("not there: libfmt-dev", err)

    def test_neither_root_nor_sudo(self):
        self.machine(missing=["libfmt-dev"], user=1000)
        code, _, err = self.run_script(self.script)
        self.assertEqual(code, 1)
        self.assertIn("needs root, and there is no sudo", err)
        self.assertIn("libfmt-dev", err)
        self.assertEqual(self.apt_calls(), [])

    def test_a_user_goes_through_sudo(self):
        self.machine(missing=["libfmt-dev"], user=1000, apt=f'>"{self.root}/installed"; exit 0')
        self.fake("sudo", '"$@"')
        self.assertEqual(self.run_script(self.script)[0], 0)
        self.assertIn("sudo env DEBIAN_FRONTEND=noninteractive apt-get", "\n".join(self.calls()))

    def test_no_debian(self):
        code, _, err = self.run_script(self.script)
        self.assertEqual(code, 1)
        self.assertIn("no dpkg-query here", err)

    def test_the_packages_are_documented(self):
        _, out, _ = self.run_script(self.script, "--list")
        document = (PROJECT / "docs" / "dependencies.md").read_text()
        self.assertGreater(len(out.split()), 10)
        for package in out.split():
            self.assertIn(f"`{package}`", document)


class RunCtest(ScriptCase):
    """tools/lib/run-ctest over a ctest that prints a count and writes a report."""

    def results(self, cases, failed=0, lit=""):
        total = len(cases)
        elements = "".join(
            f'<testcase name="{name}" status="{status}">'
            + ('<skipped message="x"/><system-out>the reason</system-out>' if status == "notrun" else "")
            + "</testcase>" for name, status in cases)
        self.build = self.root / "build"
        (self.build / "tests" / "lit-results").mkdir(parents=True)
        self.fake("ctest", f"""
            [[ " $* " == *" -N "* ]] && {{ echo Total Tests: {total}; exit 0; }}
            cat >"{self.build}/test-results.xml" <<'XML'
            <testsuite>{elements}</testsuite>
            XML
            [[ -z '{lit}' ]] || cat >"{self.build}/tests/lit-results/lit.attn.xml" <<'XML'
            {lit or "<x/>"}
            XML
            echo "1/{total} Test #1: a"
            echo
            echo "{100 * (total - failed) // total}% tests passed, {failed} tests failed out of {total}"
            echo
            echo "Total Test time (real) =   0.01 sec"
            (({failed} == 0)) || {{ echo "Errors while running CTest" >&2; exit 8; }}""")

    def run_tests(self, *options, expected="", **environment):
        (self.root / "tests").mkdir(exist_ok=True)
        (self.root / "tests" / "expected-skips.txt").write_text(expected)
        code, out, _ = self.run_script("tools/lib/run-ctest", str(self.build), *options, **environment)
        return code, out, out.rstrip("\n").splitlines()[-1]

    def test_the_count_is_the_last_line(self):
        self.results([("a", "run"), ("b", "run")])
        code, out, last = self.run_tests()
        self.assertEqual((code, last), (0, "100% tests passed, 0 tests failed out of 2"))
        self.assertIn("Total Test time", out)
        self.assertEqual(out.count("tests passed"), 1)

    def test_also_when_tests_fail(self):
        self.results([("a", "run"), ("b", "fail")], failed=1)
        code, out, last = self.run_tests(CI="true")
        self.assertEqual((code, last), (8, "50% tests passed, 1 tests failed out of 2"))
        self.assertIn("Errors while running CTest", out)

    def test_a_skip_is_told(self):
        self.results([("a", "run"), ("b", "notrun")])
        code, out, last = self.run_tests()
        self.assertEqual((code, last), (0, "100% tests passed, 0 tests failed out of 2"))
        self.assertIn("1 skipped: b", out)

    def test_ci_fails_on_a_skip(self):
        self.results([("a", "run"), ("b", "notrun")])
        code, out, last = self.run_tests(CI="true")
        self.assertEqual((code, last), (1, "50% tests passed, 1 tests failed out of 2"))
        self.assertIn("skipped, and not in tests/expected-skips.txt: b (the reason)", out)

    def test_ci_accepts_a_listed_skip(self):
        self.results([("a", "run"), ("cuda.b", "notrun")])
        code, _, last = self.run_tests(CI="true", expected="# comment\n\ncuda.*  # needs a GPU\n")
        self.assertEqual((code, last), (0, "100% tests passed, 0 tests failed out of 2"))

    def test_a_skip_for_want_of_data_is_accepted_only_without_data(self):
        self.results([("a", "run"), ("b", "notrun")])
        expected = "b  # no test data: reads models\n"
        self.assertEqual(self.run_tests(CI="true", expected=expected)[0], 0)
        code, out, _ = self.run_tests(CI="true", expected=expected, LLMOPT_TEST_DATA="/data")
        self.assertEqual(code, 1)
        self.assertIn("skipped, and not in tests/expected-skips.txt: b", out)

    def test_a_text_excuses_only_skips_that_print_it(self):
        self.results([("a", "run"), ("b", "notrun")])
        self.assertEqual(self.run_tests(CI="true", expected="* [the reason]  # why\n")[0], 0)
        code, out, _ = self.run_tests(CI="true", expected="* [no NVRTC]  # why\n")
        self.assertEqual(code, 1)
        self.assertIn("skipped, and not in tests/expected-skips.txt: b (the reason)", out)

    def test_ci_sees_the_files_of_a_lit_suite(self):
        lit = ('<testsuites><testsuite name="lit"><testcase classname="lit.attn" name="a.mlir">'
               '<skipped message="Missing required feature(s): test-data"/></testcase>'
               '<testcase classname="lit.attn" name="b.mlir"/></testsuite></testsuites>')
        self.results([("lit.attn", "run"), ("b", "run")], lit=lit)
        code, out, last = self.run_tests(CI="true")
        self.assertEqual((code, last), (1, "50% tests passed, 1 tests failed out of 2"))
        self.assertIn("lit.attn/a.mlir (Missing required feature(s): test-data)", out)
        self.assertEqual(self.run_tests(CI="true", expected="lit.attn/a.mlir # why\n")[0], 0)

    def test_a_pattern_that_matches_nothing_is_told(self):
        self.results([("a", "run")])
        _, out, _ = self.run_tests(CI="true", expected="gone.*  # why\n")
        self.assertIn("lists 'gone.*', which no test matches any more", out)

    def test_a_pattern_needs_a_reason(self):
        self.results([("a", "run")])
        (self.root / "tests").mkdir()
        (self.root / "tests" / "expected-skips.txt").write_text("a\n")
        code, _, err = self.run_script("tools/lib/run-ctest", str(self.build))
        self.assertEqual(code, 1)
        self.assertIn("expected-skips.txt:1: 'a' has no reason", err)

    def test_listing_needs_no_count(self):
        self.results([("a", "run")])
        code, out, _ = self.run_tests("-N")
        self.assertEqual((code, out), (0, "Total Tests: 1\n"))


class Drivers(ScriptCase):
    """tools/quickstart, tools/test and .ci/run."""

    def cmake(self, body="exit 0"):
        self.fake("cmake", body)

    def test_help(self):
        self.check_help("tools/quickstart")
        self.check_help("tools/test")

    def test_quickstart_refuses_what_it_does_not_know(self):
        code, _, err = self.run_script("tools/quickstart", "--devise", "cpu")
        self.assertEqual(code, 1)
        self.assertIn("quickstart: unknown argument '--devise'", err)
        code, _, err = self.run_script("tools/quickstart", "--device")
        self.assertEqual(code, 1)
        self.assertIn("--device needs a value", err)

    def test_a_failed_build_shows_the_end_of_its_log(self):
        self.cmake('[[ $1 == --build ]] || exit 0; for i in {1..60}; do echo "line $i"; done; exit 1')
        for script in ("tools/quickstart", "tools/test"):
            with self.subTest(script=script):
                code, out, err = self.run_script(script, "--no-deps")
                self.assertEqual((code, out), (1, ""))
                self.assertIn("\nline 21\n", "\n" + err.split("\n", 1)[1])
                self.assertNotIn("line 20\n", err)
                self.assertIn("building failed; the whole log is in build/", err)

    def test_quickstart_builds_the_tool_and_runs_the_models(self):
        self.cmake()
        (self.root / "build" / "bin").mkdir(parents=True)
        tool = self.root / "build" / "bin" / "llm-opt"
        tool.write_text('#!/usr/bin/env bash\necho "llm-opt $*"\n')
        tool.chmod(0o755)
        code, out, err = self.run_script("tools/quickstart", "--no-deps", "--device", "cpu")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("examples/models/llama-3.1-8b.json", out)
        self.assertIn("--device cpu", out)
        self.assertIn("--target llm-opt", self.calls()[-1])

    def test_quickstart_fails_when_the_models_fail(self):
        self.cmake()
        (self.root / "build" / "bin").mkdir(parents=True)
        tool = self.root / "build" / "bin" / "llm-opt"
        tool.write_text("#!/usr/bin/env bash\nexit 3\n")
        tool.chmod(0o755)
        self.assertEqual(self.run_script("tools/quickstart", "--no-deps")[0], 3)

    def test_test_hands_options_and_data_to_ctest(self):
        self.cmake()
        data = self.root.parent / "shared" / "data"
        data.mkdir(parents=True)
        self.fake("ctest", 'echo "data=$LLMOPT_TEST_DATA"; echo "100% tests passed, 0 tests failed out of 1"')
        code, out, _ = self.run_script("tools/test", "--no-deps", "-R", "lit")
        self.assertEqual(code, 0)
        self.assertIn(f"data={data}", out)
        self.assertTrue(self.calls()[-1].endswith(" -j2 -R lit"), self.calls())
        self.assertEqual(out.splitlines()[-1], "100% tests passed, 0 tests failed out of 1")

    def test_test_refuses_a_data_folder_that_is_not_there(self):
        code, _, err = self.run_script("tools/test", "--no-deps", LLMOPT_TEST_DATA="/nonexistent")
        self.assertEqual(code, 1)
        self.assertIn("LLMOPT_TEST_DATA is '/nonexistent'", err)

    def test_ci_run_fails_when_the_tests_fail(self):
        shutil.copytree(PROJECT / ".ci", self.root / ".ci")
        self.cmake()
        self.fake("ctest", 'echo "CI=$CI"; echo "50% tests passed, 1 tests failed out of 2"; exit 8')
        code, out, _ = self.run_script(".ci/run", "--no-deps")
        self.assertEqual(code, 8)
        self.assertIn("CI=true", out)


class Sanitize(ScriptCase):
    script = "tools/sanitize"

    def setUp(self):
        super().setUp()
        self.fake("cmake", "exit 0")
        self.fake("ctest", 'echo "TSAN=${TSAN_OPTIONS:-} E2E=${LLMOPT_E2E_REQUESTS:-}"; exit 0')
        compiler = self.root / "build" / "bin" / "llm-opt"
        compiler.parent.mkdir(parents=True)
        compiler.write_text("")
        compiler.chmod(0o755)

    def test_help_and_wrong_arguments(self):
        self.check_help(self.script)
        for arguments, message in (((), "no sanitizer is named; thread and address are allowed"),
                                   (("thread", "address"), "two sanitizers, 'thread' and 'address'")):
            code, _, err = self.run_script(self.script, *arguments)
            self.assertEqual(code, 1)
            self.assertIn(message, err)

    def test_quiet_when_fine(self):
        for sanitizer, preset in (("thread", "runtime-tsan"), ("address", "runtime-asan")):
            (self.root / "calls").unlink(missing_ok=True)
            self.assertEqual(self.run_script(self.script, sanitizer), (0, "", ""))
            configure, build, test = self.calls()
            self.assertEqual(configure, f"cmake --preset {preset}")
            self.assertIn(f"build/sanitize/{sanitizer} ", build)
            self.assertIn("executor-tests", build)
            self.assertIn(f"--test-dir {self.root}/build/sanitize/{sanitizer} ", test)
            self.assertIn(" -R ", test)

    def test_whole(self):
        self.assertEqual(self.run_script(self.script, "--whole", "thread"), (0, "", ""))
        _, build, test = self.calls()
        self.assertTrue(build.endswith("--target all"), build)
        self.assertNotIn(" -R ", test)

    def test_options_go_to_ctest_and_its_output_is_shown(self):
        code, out, _ = self.run_script(self.script, "thread", "-R", "Failures", TSAN_OPTIONS="a=1")
        self.assertEqual(code, 0)
        self.assertTrue(self.calls()[2].endswith("-R Failures"), self.calls()[2])
        self.assertRegex(out, "TSAN=.* a=1 E2E=8")

    def test_a_report_is_shown_and_fails(self):
        self.fake("ctest", "echo a data race; exit 8")
        code, _, err = self.run_script(self.script, "thread")
        self.assertEqual(code, 1)
        self.assertIn("a data race", err)
        self.assertIn("build/sanitize/thread.log", err)

    def test_the_compiler_is_built_where_it_is_not_there(self):
        (self.root / "build" / "bin" / "llm-opt").unlink()
        self.run_script(self.script, "thread")
        self.assertIn("--target llm-opt", self.calls()[1])
        (self.root / "calls").unlink()
        self.run_script(self.script, "thread", LLMOPT_COMPILER="/another/llm-opt")
        self.assertNotIn("llm-opt", self.calls()[1].replace(str(self.root), ""))


class Presets(unittest.TestCase):
    def test_none_spoils_the_folder_of_another(self):
        """A cache keeps what a preset wrote into it, also for a preset that says nothing of it."""
        presets = {preset["name"]: preset for preset in
                   json.loads((PROJECT / "CMakePresets.json").read_text())["configurePresets"]}

        def value(name, key, part=None):
            preset = presets[name]
            own = preset.get(part, {}) if part else preset
            return own[key] if key in own else (
                value(preset["inherits"], key, part) if "inherits" in preset else None)

        folders = {}
        for name, preset in presets.items():
            if not preset.get("hidden"):
                folders.setdefault(value(name, "binaryDir"), []).append(name)
        for folder, names in folders.items():
            self.assertEqual(len(names), 1, f"{folder} is the folder of {names}")
        # What was configured by hand without tests: tools/test turns them on again.
        self.assertEqual(value("dev", "LLMOPT_TESTS", "cacheVariables"), "ON")


if __name__ == "__main__":
    unittest.main()
