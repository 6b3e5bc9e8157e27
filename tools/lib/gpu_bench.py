"""The timing part of tools/gpu-check: decode and prefill on the device, and the peers that Python
can import on the same shapes."""
import json
import pathlib
import subprocess
import tempfile

import gpu_peers

HEADS, KV_HEADS, DIM = 32, 8, 128
MOST_TOKENS = 1 << 18  # K and V of a decode batch then take 1 GiB, far above any cache

# Marks for the day (shares): decode of the copy bandwidth, prefill of PyTorch's FlashAttention-2.
DECODE_MARK, PREFILL_MARK = 0.80, 1.0


def decode_cases(small):
    """Batch, keys and page size."""
    if small:
        return [(2, 40, 16), (1, 70, 64)]
    cases = [(batch, keys, page) for page in (16, 64) for batch in (1, 8, 32, 64, 256)
             for keys in (1024, 4096, 16384, 65536) if batch * keys <= MOST_TOKENS]
    return cases


def prefill_cases(small):
    """Length, head size and whether it is causal. One sequence."""
    if small:
        return [(40, 64, True)]
    return [(length, dim, causal) for dim in (64, 128, 256) for causal in (True, False)
            for length in (2048, 8192, 16384)]


def decode_spec(page):
    q = f"tensor<?x{HEADS}x{DIM}xbf16>"
    cache = f"!attn.kv_cache<{KV_HEADS}x{DIM}xbf16, page = {page}>"
    return (f"func.func @decode(%q: {q}, %kv: {cache}, %seq: !attn.sequences) -> {q} {{\n"
            f"  %o = attn.attention %q, %kv, %seq mask(causal)\n"
            f"       : {q}, {cache}, !attn.sequences -> {q}\n  return %o : {q}\n}}\n")


def prefill_spec(dim, causal):
    t = f"tensor<?x?x{HEADS // 2}x{dim}xbf16>"
    mask = "mask(causal) " if causal else ""
    return (f"func.func @prefill(%q: {t}, %k: {t}, %v: {t}) -> {t} {{\n"
            f"  %o = attn.attention %q, %k, %v {mask}: {t}, {t}, {t} -> {t}\n"
            f"  return %o : {t}\n}}\n")


def measure(run, kind, text, shapes, *options):
    """`llm-opt bench` of one spec on some shapes; a row each."""
    with tempfile.TemporaryDirectory() as folder:
        spec = pathlib.Path(folder) / f"{kind}.mlir"
        spec.write_text(text)
        arguments = [run.binary, "bench", str(spec), "--device", run.options.device, "--json",
                     "--repeats", "2" if run.options.small else "20", *options]
        for _, shape in shapes:
            arguments += ["--shape", shape]
        done = subprocess.run(arguments, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for (facts, _), line in zip(shapes, lines):
        yield {"case": kind, **facts, **{k: line[k] for k in (
            "ms", "best_ms", "plan_ms", "gb_per_s", "tflop_per_s", "copy_gb_per_s",
            "share_of_copy")}, "ok": line.get("passed", True), "reason": line.get("failure", "")}
    if done.returncode and len(lines) < len(shapes):
        facts, shape = shapes[len(lines)]
        yield {"case": kind, **facts, "ok": False,
               "reason": (done.stderr.strip() or "no output").splitlines()[-1]}


def groups(small):
    """What is timed, by spec: the spec's text, facts and shape of each case, options."""
    check = ["--check"] if small else []  # the oracle takes long on large shapes
    for page in sorted({page for _, _, page in decode_cases(small)}):
        shapes = [({"batch": b, "keys": k, "page": p}, f"q={b}x1,kv={b}x{k}")
                  for b, k, p in decode_cases(small) if p == page]
        for graph in (False, True):
            some = [({**facts, "graph": graph}, shape) for facts, shape in shapes]
            yield "decode", decode_spec(page), some, [*check, *(["--graph"] if graph else [])]
    for dim, causal in sorted({case[1:] for case in prefill_cases(small)}):
        shapes = [({"length": n, "dim": dim, "causal": causal}, f"q={n},kv={n}")
                  for n, d, c in prefill_cases(small) if (d, c) == (dim, causal)]
        yield "prefill", prefill_spec(dim, causal), shapes, check


def run(run):
    """Fills report['bench'] and report['peers']."""
    report, small = run.report, run.options.small
    for kind, text, shapes, options in groups(small):
        if run.late():
            report["skipped"] += [f"bench {kind} {facts}" for facts, _ in shapes]
            continue
        for row in measure(run, kind, text, shapes, *options):
            report["bench"].append(row)
            print(f"{'ok    ' if row['ok'] else 'FAILED'} bench {describe(row)}: "
                  f"{row.get('ms', 0):.4f} ms, {row.get('gb_per_s', 0):.1f} GB/s, "
                  f"{row.get('tflop_per_s', 0):.2f} TFLOP/s {row['reason']}", flush=True)
    report["peers"] = gpu_peers.run(run, prefill_cases(small), decode_cases(small),
                                    (HEADS, KV_HEADS, DIM))


def describe(row):
    return row["case"] + " " + ", ".join(
        f"{name} {row[name]}" for name in ("batch", "keys", "page", "graph", "length", "dim",
                                           "causal") if name in row)


def marks(report):
    """What the marks say of these rows, in words."""
    if report["substitute"] or not report["device"].startswith("cuda"):
        return ["Times of no GPU: no mark applies."]
    lines = []
    for row in report["bench"]:
        if "ms" not in row:
            continue
        if row["case"] == "decode" and row["page"] == 16 and row["batch"] >= 32 and \
                row["keys"] >= 4096 and row["graph"]:
            share = row["share_of_copy"]
            lines.append(f"{describe(row)}: {share:.0%} of a copy; mark {DECODE_MARK:.0%}: "
                         f"{'reached' if share >= DECODE_MARK else 'missed'}")
        peer = report["peers"].get("rows", {}).get(describe(row), {}).get("torch flash")
        if row["case"] == "prefill" and peer:
            share = peer / row["ms"]
            lines.append(f"{describe(row)}: {share:.2f} of torch's FlashAttention-2; mark "
                         f"{PREFILL_MARK}: {'reached' if share >= PREFILL_MARK else 'missed'}")
    return lines


def markdown(report, table):
    peers = report["peers"]
    names = sorted({name for row in peers.get("rows", {}).values() for name in row})
    rows = []
    for row in report["bench"]:
        other = peers.get("rows", {}).get(describe(row), {})
        shown = {"case": describe(row), "ok": row["ok"], "reason": row["reason"]}
        if "ms" in row:
            shown |= {"ms": f"{row['ms']:.4f}", "GB/s": f"{row['gb_per_s']:.1f}",
                      "TFLOP/s": f"{row['tflop_per_s']:.2f}",
                      "of a copy": f"{row['share_of_copy']:.0%}"}
        rows.append(shown | {f"{name}, ms": f"{ms:.4f}" for name, ms in other.items()})
    copies = [row["copy_gb_per_s"] for row in report["bench"] if "copy_gb_per_s" in row]
    text = "\n## Times\n\nMedians on the device, without copies and planning. "
    text += f"A copy within its memory, read and written: {max(copies, default=0):.0f} GB/s. "
    if peers.get("matmul_tflop_per_s"):
        text += f"torch.matmul, bf16: {peers['matmul_tflop_per_s']:.0f} TFLOP/s. "
    text += "\n\n" + table(["case", "ms", "GB/s", "TFLOP/s", "of a copy",
                            *(f"{name}, ms" for name in names), "ok", "reason"], rows)
    text += "\n" + "\n".join(f"- {line}" for line in marks(report)) + "\n"
    text += "\n## Peers\n\n" + "\n".join(
        f"- {name}: {state}" for name, state in peers.get("found", {}).items()) + "\n"
    return text
