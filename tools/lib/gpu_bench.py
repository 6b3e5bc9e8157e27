"""The timing part of tools/gpu-check: decode and prefill on the device, a process for each shape, and
what the report says of them."""
import json
import pathlib
import tempfile

import gpu_child
import gpu_peers
import gpu_plan
from gpu_plan import describe

FIGURES = ("ms", "best_ms", "plan_ms", "gb_per_s", "tflop_per_s", "copy_gb_per_s", "share_of_copy")


def json_lines(text):
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line) if line.startswith("{") else None
        except ValueError:  # cut off where the process was
            continue
        rows += [row] if row else []
    return rows


def rows_of(case, lines, reason):
    """The report's rows of a shape: as many as lines came, and one that says why not all did."""
    rows = []
    for line in lines:
        shown = {"graph": line["graph"]} if case["case"] == "decode" else {}
        rows.append({**case, **shown, **{name: line[name] for name in FIGURES}, "ok": True,
                     "reason": ""})
    if reason:
        rows.append({**case, "ok": False, "reason": reason})
    return rows


def command_of(run, case, folder, *options):
    spec = pathlib.Path(folder) / f"{case['case']}.mlir"
    spec.write_text(gpu_plan.spec(case))
    return [run.binary, "bench", str(spec), "--device", run.options.device, "--json",
            "--shape", gpu_plan.shape(case), *options]


def measure(run, case, folder):
    """The rows of a shape; what the peers need lies in `folder`."""
    modes = ["--graph", "--direct"] if case["case"] == "decode" else []
    repeats = "2" if run.options.small else str(gpu_plan.REPEATS)
    done = gpu_child.run(command_of(run, case, folder, "--repeats", repeats, *modes, "--save",
                                    str(folder)), run.budget.timeout("bench"))
    reason = done.reason()
    if not reason and run.options.small:  # the oracle takes long on large shapes
        reason = gpu_child.run(command_of(run, case, folder, "--repeats", "1", "--check"),
                               run.budget.timeout("bench")).reason()
    return rows_of(case, json_lines(done.out), reason)


def run(run):
    """Fills report['bench'] and report['peers']."""
    report = run.report
    cases, too_large = gpu_plan.cases(run.options.small, gpu_plan.memory_of(report["env"]))
    if run.options.device.startswith("cuda") and not report["env"]["cuda_devices"]:
        cases = cases[:1]  # fails, with the reason, and so would all
    report["too_large"] = [describe(case) for case in too_large]
    worker, saved = gpu_child.Worker(gpu_peers.WORKER), []
    report["peers"] = gpu_peers.ask_which(worker, report["substitute"])
    try:
        with tempfile.TemporaryDirectory() as parent:
            for i, case in enumerate(cases):
                if run.budget.late("bench"):
                    report["skipped"].append(f"bench {describe(case)}")
                    continue
                folder = pathlib.Path(parent) / str(i)
                folder.mkdir()
                for row in measure(run, case, folder):
                    report["bench"].append(row)
                    print(f"{'ok    ' if row['ok'] else 'FAILED'} bench {describe(row)}: "
                          f"{row.get('ms', 0):.4f} ms, {row.get('gb_per_s', 0):.1f} GB/s, "
                          f"{row.get('tflop_per_s', 0):.2f} TFLOP/s {row['reason']}", flush=True)
                if (folder / "call.json").exists():
                    saved.append((case, folder))
            gpu_peers.run(report["peers"], worker, saved, run.budget, report["skipped"])
    finally:
        worker.close()


def peer_rows(report, row):
    """Milliseconds by peer of a row of the benchmark: decode's stand by the graph's."""
    if "ms" not in row or row.get("graph") is False:
        return {}
    case = {name: value for name, value in row.items() if name != "graph"}
    return report["peers"].get("rows", {}).get(describe(case), {})


def marks(report):
    """What the marks say of these rows, in words."""
    if report["substitute"] or not report["device"].startswith("cuda"):
        return ["Times of no GPU: no mark applies."]
    lines = []
    for row in report["bench"]:
        if "ms" not in row:
            continue
        if row["case"] == "decode" and row["graph"] and gpu_plan.is_marked(row):
            share, mark = row["share_of_copy"], gpu_plan.DECODE_MARK
            lines.append(f"{describe(row)}: {share:.0%} of a copy; mark {mark:.0%}: "
                         f"{'reached' if share >= mark else 'missed'}")
        peer = peer_rows(report, row).get("torch flash")
        if row["case"] == "prefill" and peer:
            share, mark = peer / row["ms"], gpu_plan.PREFILL_MARK
            lines.append(f"{describe(row)}: {share:.2f} of torch's FlashAttention-2; mark "
                         f"{mark}: {'reached' if share >= mark else 'missed'}")
    return lines


def markdown(report, table):
    peers = report["peers"]
    names = sorted({name for row in peers.get("rows", {}).values() for name in row})
    rows = []
    for row in report["bench"]:
        shown = {"case": describe(row), "ok": row["ok"], "reason": row["reason"]}
        if "ms" in row:
            shown |= {"ms": f"{row['ms']:.4f}", "GB/s": f"{row['gb_per_s']:.1f}",
                      "TFLOP/s": f"{row['tflop_per_s']:.2f}",
                      "of a copy": f"{row['share_of_copy']:.0%}"}
        rows.append(shown | {f"{name}, ms": f"{ms:.4f}"
                             for name, ms in peer_rows(report, row).items()})
    copies = [row["copy_gb_per_s"] for row in report["bench"] if "copy_gb_per_s" in row]
    text = "\n## Times\n\nMedians on the device, without copies and planning. "
    text += f"A copy within its memory, read and written: {max(copies, default=0):.0f} GB/s. "
    text += gpu_peers.matmul_text(peers)
    text += "\n\n" + table(["case", "ms", "GB/s", "TFLOP/s", "of a copy",
                            *(f"{name}, ms" for name in names), "ok", "reason"], rows)
    if report.get("too_large"):
        text += (f"\nMore than {gpu_plan.MEMORY_SHARE:.0%} of the card's memory: "
                 f"{'; '.join(report['too_large'])}.\n")
    text += "\n" + "\n".join(f"- {line}" for line in marks(report)) + "\n"
    text += ("\n## Peers\n\nOn the same values: their results are compared with these kernels' "
             "once. KV that is contiguous was gathered from the pages before, which no time "
             "counts.\n\n")
    text += "\n".join(f"- {name}: {state}" for name, state in peers.get("found", {}).items())
    text += "".join(f"\n- DIFFERS: {line}" for line in peers.get("differing", [])) + "\n"
    return text
