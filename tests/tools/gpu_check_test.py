"""tools/gpu-check without a card: its plan of shapes, its time, children that hang, what it makes of
answers, and that a binary which hangs ends in a report."""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "lib"))
import gpu_bench  # noqa: E402
import gpu_child  # noqa: E402
import gpu_peer_worker  # noqa: E402
import gpu_peers  # noqa: E402
import gpu_plan  # noqa: E402

DECODE = {"case": "decode", "batch": 64, "keys": 4096, "page": 16}
PREFILL = {"case": "prefill", "length": 2048, "dim": 64, "causal": True}
LINE = {"graph": True, "ms": 2.0, "best_ms": 1.9, "plan_ms": 0.1, "gb_per_s": 900.0,
        "tflop_per_s": 3.0, "copy_gb_per_s": 1000.0, "share_of_copy": 0.9}


def python(code):
    return [sys.executable, "-c", code]


def table(columns, rows):
    return "".join(f"{columns}: {row}\n" for row in rows)


class Plan(unittest.TestCase):
    def test_the_card_decides_what_is_left_out(self):
        for memory, grid in ((141e9, 40), (80e9, 38), (24 * 2**30, 38), (0, 34)):
            cases, too_large = gpu_plan.cases(False, memory)
            self.assertEqual(len([c for c in cases if c["case"] == "decode"]), grid)
            self.assertEqual(len(cases) + len(too_large), 40 + 18)
            limit = gpu_plan.MEMORY_SHARE * (memory or gpu_plan.UNKNOWN_MEMORY)
            self.assertTrue(all(gpu_plan.key_bytes(c) <= limit for c in cases))
            self.assertTrue(all(gpu_plan.key_bytes(c) > limit for c in too_large))

    def test_marked_shapes_come_first(self):
        cases, _ = gpu_plan.cases(False, 141e9)
        marked = [(c["batch"], c["keys"]) for c in cases[:9]]
        self.assertEqual(set(marked), {(b, k) for b in (32, 64, 256) for k in (4096, 16384, 65536)})
        self.assertEqual([c["case"] for c in cases[9:27]], ["prefill"] * 18)
        self.assertFalse(any(gpu_plan.is_marked(c) for c in cases[27:]))

    def test_the_grid_fits_its_time(self):
        for memory, bandwidth, rate in ((141e9, 3e12, 4e14), (80e9, 1.3e12, 1.5e14)):
            cases, _ = gpu_plan.cases(False, memory)
            spent = sum(gpu_plan.seconds_of(case, bandwidth, rate) for case in cases)
            ends = gpu_plan.Budget.ENDS
            self.assertLess(spent, 460 * (ends["bench"] - ends["sanitizer"]))

    def test_jobs(self):
        self.assertEqual([gpu_plan.jobs(n) for n in (None, 1, 2, 4, 64)], [1, 1, 1, 2, 4])

    def test_memory(self):
        self.assertEqual(gpu_plan.memory_of({"cuda_devices": []}), 0)
        self.assertEqual(gpu_plan.memory_of({"cuda_devices": [{"memory_bytes": 7}]}), 7)

    def test_shapes_and_specs(self):
        self.assertEqual(gpu_plan.shape(DECODE), "q=64x1,kv=64x4096")
        self.assertEqual(gpu_plan.shape(PREFILL), "q=2048,kv=2048")
        self.assertIn("page = 16", gpu_plan.spec(DECODE))
        self.assertIn("mask(causal)", gpu_plan.spec(PREFILL))
        self.assertNotIn("mask", gpu_plan.spec({**PREFILL, "causal": False}))


class Time(unittest.TestCase):
    def setUp(self):
        self.now = 100.0

    def budget(self, slow=False):
        return gpu_plan.Budget(460, slow, clock=lambda: self.now)

    def test_parts_end_in_their_order(self):
        ends = list(gpu_plan.Budget.ENDS.values())
        self.assertEqual(ends, sorted(ends))
        self.assertEqual(ends[-1], 1.0)
        self.assertEqual(gpu_plan.Budget.ENDS.keys(), gpu_plan.Budget.LIMITS.keys())
        budget = self.budget()
        self.assertFalse(any(budget.late(part) for part in budget.ENDS))
        self.now += 460 * 0.5
        self.assertEqual([budget.late(part) for part in budget.ENDS],
                         [True, False, False, False, False])
        self.now += 460
        self.assertTrue(all(budget.late(part) for part in budget.ENDS))

    def test_no_child_outlives_the_whole(self):
        budget = self.budget()
        for spent in range(0, 600, 7):
            self.now = 100.0 + spent
            for part in budget.LIMITS:
                self.assertLessEqual(spent + budget.timeout(part), max(475, spent + 1))
                self.assertLessEqual(budget.timeout(part), budget.LIMITS[part])
        self.assertLess(475, 8 * 60)

    def test_simulated_runs_have_all_of_it(self):
        budget = self.budget(slow=True)
        self.now += 459
        self.assertFalse(budget.late("verify"))
        self.assertEqual(self.budget(slow=True).timeout("bench"), 400)


class Children(unittest.TestCase):
    def test_one_that_ends(self):
        done = gpu_child.run(python("print('a'); import sys; print('b', file=sys.stderr)"), 60)
        self.assertEqual((done.code, done.out, done.err, done.reason()), (0, "a\n", "b\n", ""))

    def test_one_that_fails(self):
        self.assertEqual(gpu_child.run(python("import sys; sys.exit('why')"), 60).reason(), "why")
        self.assertEqual(gpu_child.run(python("raise SystemExit(3)"), 60).reason(), "no output")
        killed = gpu_child.run(python("import os; os.kill(os.getpid(), 9)"), 60)
        self.assertEqual(killed.reason(), "signal 9: no output")
        self.assertIn("No such file", gpu_child.run(["/nowhere/x"], 60).reason())

    def test_one_that_hangs_and_what_it_started(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "pid"
            start = time.monotonic()
            done = gpu_child.run(
                ["sh", "-c", f"trap '' TERM; echo said; sleep 1000 & echo $! > {file}; wait"], 1)
            self.assertLess(time.monotonic() - start, 30)
            self.assertEqual((done.code, done.out), (None, "said\n"))
            self.assertEqual(done.reason(), "no end after 1 s")
            status = pathlib.Path("/proc") / file.read_text().strip() / "status"
            for _ in range(100):
                if not status.exists() or "\nState:\tZ" in status.read_text():
                    break
                time.sleep(0.1)
            else:
                self.fail("the child's child runs on")

    def test_a_worker(self):
        worker = gpu_child.Worker(python(
            "import json, os, sys, time\n"
            "for n, line in enumerate(sys.stdin):\n"
            "    asked = json.loads(line)\n"
            "    if asked == 'hang': time.sleep(1000)\n"
            "    if asked == 'die': sys.exit('it died')\n"
            "    print('noise' if asked == 'noise' else json.dumps({'n': n}), flush=True)\n"))
        try:
            self.assertEqual(worker.ask("x", 60), {"n": 0})
            self.assertEqual(worker.ask("x", 60), {"n": 1})
            self.assertEqual(worker.ask("hang", 1), {"error": "no answer after 1 s"})
            self.assertEqual(worker.ask("x", 60), {"n": 0})  # a new one
            self.assertEqual(worker.ask("die", 60), {"error": "it died"})
            self.assertEqual(worker.ask("x", 60), {"n": 0})
            self.assertIn("error", worker.ask("noise", 60))
            self.assertEqual(worker.ask("x", 60), {"n": 0})
        finally:
            worker.close()
        self.assertIn("error", gpu_child.Worker(["/nowhere/x"]).ask("x", 5))


class Report(unittest.TestCase):
    def report(self, **more):
        return {"device": "cuda", "substitute": False, "bench": [], "too_large": [], "skipped": [],
                "peers": {"found": {"torch": "absent (x)"}, "rows": {}, "differing": []}, **more}

    def test_lines_that_were_cut_off(self):
        self.assertEqual(gpu_bench.json_lines('noise\n{"a": 1}\n\n{"b": '), [{"a": 1}])

    def test_a_shape_that_hangs_is_a_row(self):
        rows = gpu_bench.rows_of(DECODE, [{**LINE, "graph": False}], "no end after 20 s")
        self.assertEqual([row["ok"] for row in rows], [True, False])
        text = gpu_bench.markdown(self.report(bench=rows), table)
        self.assertIn("no end after 20 s", text)
        self.assertIn("'ok': False", text)

    def test_marks(self):
        rows = gpu_bench.rows_of(DECODE, [{**LINE, "graph": False}, LINE], "")
        rows += gpu_bench.rows_of({**DECODE, "page": 64}, [LINE], "")
        rows += gpu_bench.rows_of(PREFILL, [LINE], "")
        report = self.report(bench=rows)
        self.assertEqual(gpu_bench.marks(report), [
            "decode batch 64, keys 4096, page 16, graph True: 90% of a copy; mark 80%: reached"])
        report["peers"]["rows"] = {gpu_plan.describe(PREFILL): {"torch flash": 1.0}}
        self.assertIn("0.50 of torch's FlashAttention-2; mark 1.0: missed",
                      gpu_bench.marks(report)[1])
        self.assertEqual(gpu_bench.marks({**report, "substitute": True}),
                         ["Times of no GPU: no mark applies."])

    def test_a_peer_stands_by_the_graph(self):
        rows = gpu_bench.rows_of(DECODE, [{**LINE, "graph": False}, LINE], "")
        report = self.report(bench=rows)
        report["peers"]["rows"] = {gpu_plan.describe(DECODE): {"FlashInfer": 1.5}}
        self.assertEqual([gpu_bench.peer_rows(report, row) for row in rows],
                         [{}, {"FlashInfer": 1.5}])
        self.assertEqual(gpu_bench.markdown(report, table).count("'FlashInfer, ms': '1.5000'"), 1)

    def test_what_is_missing_is_said(self):
        text = gpu_bench.markdown(self.report(too_large=["decode x"]), table)
        self.assertIn("matmul rate was not measured, which takes torch: absent (x).", text)
        self.assertIn("More than 70% of the card's memory: decode x.", text)
        self.assertEqual(gpu_peers.matmul_text({"matmul": {"tflop_per_s": 700.4}}),
                         "torch.matmul, bf16: 700 TFLOP/s.")
        self.assertIn("no answer after 45 s",
                      gpu_peers.matmul_text({"matmul": {"error": "no answer after 45 s"}}))


class Peers(unittest.TestCase):
    def test_who_is_asked(self):
        found = {"torch": "version 2.9", "flash_attn": "absent (x)", "flashinfer": "version 1"}
        self.assertEqual(gpu_peers.peers_of(PREFILL, found),
                         ["torch flash", "torch cuDNN", "FlexAttention"])
        self.assertEqual(gpu_peers.peers_of(DECODE, found),
                         ["torch flash, contiguous KV", "FlashInfer"])

    def test_answers(self):
        result = {"found": {}, "rows": {}, "differing": []}
        for worst in (0.001, 0.5, math.nan):
            gpu_peers.note(result, DECODE, "FlashInfer", {"ms": 2.0, "worst": worst})
        self.assertEqual(len(result["differing"]), 2)
        self.assertIn("0.5 of a row's largest element", result["differing"][0])
        gpu_peers.note(result, PREFILL, "torch cuDNN", {"error": "no answer after 45 s"})
        self.assertEqual(result["found"], {
            f"torch cuDNN, {gpu_plan.describe(PREFILL)}": "no answer after 45 s"})
        self.assertEqual(list(result["rows"]), [gpu_plan.describe(DECODE)])

    def test_time_is_asked_before_each_peer(self):
        class Answers:
            asked = []

            def ask(self, question, timeout):
                self.asked.append(question.get("peer", question["ask"]))
                return {"ms": 1.0, "worst": 0.0}

        now, answers, skipped = [0.0], Answers(), []
        budget = gpu_plan.Budget(100, clock=lambda: now.__setitem__(0, now[0] + 15) or now[0])
        result = {"usable": True, "found": {"torch": "version 2"}, "rows": {}, "differing": []}
        gpu_peers.run(result, answers, [(PREFILL, "a"), (PREFILL, "b")], budget, skipped)
        self.assertEqual(answers.asked[:2], ["matmul", "torch flash"])
        self.assertEqual(len(answers.asked) - 1 + len(skipped), 6)
        self.assertTrue(skipped and len(answers.asked) > 2)
        gpu_peers.run({"usable": False}, None, [], budget, skipped)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.npy"
            header = b"{'descr': '<V2', 'fortran_order': False, 'shape': (3, 1), }".ljust(117) + b"\n"
            path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"abcdef")
            self.assertEqual(gpu_peer_worker.read_npy(path), ("bfloat16", (3, 1), b"abcdef"))
        for start, block, elements, want in ((0, 10, 10, 1), (1, 10, 10, 2), (9, 10, 12, 3)):
            self.assertEqual(gpu_peer_worker.copies(start, block, elements), want)

    def test_the_worker_without_torch(self):
        worker = gpu_child.Worker(gpu_peers.WORKER)
        try:
            result = gpu_peers.ask_which(worker, substitute=True)
            self.assertEqual(result["found"].keys(), {"torch", "flash_attn", "flashinfer"})
            self.assertFalse(result["usable"])
            self.assertIn("error", worker.ask({"ask": "time", "case": DECODE, "peer": "FlashInfer",
                                               "folder": "/nowhere"}, 60))
        finally:
            worker.close()


class Hanging(unittest.TestCase):
    """A binary whose every kernel hangs: gpu-check ends, and says what did not."""

    def test_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            binary = pathlib.Path(folder) / "llm-opt"
            env = {"llm-opt": "0", "llvm": "0", "cpu": "x", "nvrtc": "none", "cuda_driver": "x",
                   "cuda_devices": []}
            binary.write_text(f"#!/bin/sh\nif [ $1 = env ]; then echo '{json.dumps(env)}'; exit; fi\n"
                              "sleep 1000\n")
            os.chmod(binary, 0o755)
            start = time.monotonic()
            done = subprocess.run([sys.executable, "-B", str(ROOT / "tools" / "gpu-check"),
                                   "--binary", str(binary), "--seconds", "-10", "--out", folder],
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 1, done.stderr)
            text = (pathlib.Path(folder) / "gpu-check.md").read_text()
            self.assertIn("Not run for lack of time: verify alibi-bias", text)
            self.assertIn("bench decode batch 32, keys 4096, page 16", text)
            done = subprocess.run([sys.executable, "-B", str(ROOT / "tools" / "gpu-check"),
                                   "--binary", str(binary), "--seconds", "0.5", "--out", folder],
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("FAILED verify alibi-bias", done.stdout)
            self.assertRegex(done.stdout, "no end after 1[56] s")
            self.assertRegex(done.stdout, r"0 passed, [1-4] failed")
            self.assertLess(time.monotonic() - start, 120)


if __name__ == "__main__":
    unittest.main()
