"""What tools/gpu-check does when: the shapes that it times, in order, and how its time is shared."""
import time

HEADS, KV_HEADS, DIM = 32, 8, 128
PREFILL_HEADS = 16
TOKEN_BYTES = 2 * KV_HEADS * DIM * 2  # K and V, bf16

# A shape may take so much of the card's memory; partial results, graphs and the driver want some.
MEMORY_SHARE = 0.7
UNKNOWN_MEMORY = 16 << 30

BATCHES, KEYS, PAGES = (1, 8, 32, 64, 256), (1024, 4096, 16384, 65536), (16, 64)
LENGTHS, DIMS = (2048, 8192, 16384), (64, 128, 256)

# Marks for the day (shares): decode of the copy bandwidth, prefill of PyTorch's FlashAttention-2.
DECODE_MARK, PREFILL_MARK = 0.80, 1.0

# Repeats that are timed, and the warm-up of `llm-opt bench`; directly and from a graph.
REPEATS, WARMUP, MODES = 20, 2, 2
# Of one process of `llm-opt bench`, whatever the shape: the driver's start, which dominates
# (measured elsewhere: 0.2 to 0.5 s), and what runs on the host.
START_SECONDS = 0.7


def is_marked(case):
    """Whether a mark applies to a decode shape."""
    return case["page"] == 16 and case["batch"] >= 32 and case["keys"] >= 4096


def key_bytes(case):
    """Of K and V on the card."""
    if case["case"] == "decode":
        return case["batch"] * case["keys"] * TOKEN_BYTES
    return 4 * case["length"] * PREFILL_HEADS * case["dim"] * 2  # Q and O too


def flops(case):
    if case["case"] == "decode":
        return 4 * case["batch"] * case["keys"] * HEADS * DIM
    return 4 * case["length"] ** 2 * PREFILL_HEADS * case["dim"] / (2 if case["causal"] else 1)


def decode_cases(small):
    if small:
        grid = [(2, 40, 16), (1, 70, 64)]
    else:
        grid = [(batch, keys, page) for page in PAGES for batch in BATCHES for keys in KEYS]
    return [{"case": "decode", "batch": b, "keys": k, "page": p} for b, k, p in grid]


def prefill_cases(small):
    """One sequence."""
    grid = [(40, 64, True)] if small else [(length, dim, causal) for dim in DIMS
                                           for causal in (True, False) for length in LENGTHS]
    return [{"case": "prefill", "length": n, "dim": d, "causal": c} for n, d, c in grid]


def cases(small, memory):
    """What is timed, most wanted first, and what the card has no room for."""
    limit = MEMORY_SHARE * (memory or UNKNOWN_MEMORY)
    decode = sorted(decode_cases(small), key=lambda case: not is_marked(case))
    marked = sum(map(is_marked, decode))
    wanted = decode[:marked] + prefill_cases(small) + decode[marked:]
    return ([case for case in wanted if key_bytes(case) <= limit],
            [case for case in wanted if key_bytes(case) > limit])


def memory_of(env):
    """Bytes of the first card; 0: not known."""
    devices = env.get("cuda_devices") or [{}]
    return devices[0].get("memory_bytes") or 0


def seconds_of(case, bytes_per_second, flops_per_second):
    """About what a shape takes: its process, filling the memory, and the runs."""
    size = key_bytes(case)
    once = max(size / bytes_per_second, flops(case) / flops_per_second)
    return START_SECONDS + 2 * size / bytes_per_second + MODES * (REPEATS + WARMUP) * once


def shape(case):
    """As `llm-opt bench --shape` takes it."""
    if case["case"] == "decode":
        return f"q={case['batch']}x1,kv={case['batch']}x{case['keys']}"
    return f"q={case['length']},kv={case['length']}"


def spec(case):
    """The text of a case's spec."""
    if case["case"] == "prefill":
        t = f"tensor<?x?x{PREFILL_HEADS}x{case['dim']}xbf16>"
        mask = "mask(causal) " if case["causal"] else ""
        return (f"func.func @prefill(%q: {t}, %k: {t}, %v: {t}) -> {t} {{\n"
                f"  %o = attn.attention %q, %k, %v {mask}: {t}, {t}, {t} -> {t}\n"
                f"  return %o : {t}\n}}\n")
    q = f"tensor<?x{HEADS}x{DIM}xbf16>"
    cache = f"!attn.kv_cache<{KV_HEADS}x{DIM}xbf16, page = {case['page']}>"
    return (f"func.func @decode(%q: {q}, %kv: {cache}, %seq: !attn.sequences) -> {q} {{\n"
            f"  %o = attn.attention %q, %kv, %seq mask(causal)\n"
            f"       : {q}, {cache}, !attn.sequences -> {q}\n  return %o : {q}\n}}\n")


def describe(case):
    return case["case"] + " " + ", ".join(
        f"{name} {case[name]}" for name in ("batch", "keys", "page", "graph", "length", "dim",
                                            "causal") if name in case)


def jobs(processors):
    """How many verify at a time: each has threads of its own."""
    return max(1, min(4, (processors or 1) // 2))


class Budget:
    """Time for the parts, in their order: a part begins nothing new past its end, and time that one
    leaves is the next ones'. No child outlives the whole by more than GRACE."""

    ENDS = {"verify": 0.42, "graph": 0.52, "sanitizer": 0.60, "bench": 0.75, "peers": 1.0}
    LIMITS = {"verify": 60, "graph": 60, "sanitizer": 60, "bench": 20, "peers": 45}
    GRACE = 15
    SLOW = 20  # simulated: nothing ends early for slowness alone

    def __init__(self, seconds, slow=False, clock=time.monotonic):
        self.seconds, self.slow, self.clock, self.start = seconds, slow, clock, clock()

    def spent(self):
        return self.clock() - self.start

    def late(self, part):
        return self.spent() >= self.seconds * (1 if self.slow else self.ENDS[part])

    def timeout(self, part):
        limit = self.LIMITS[part] * (self.SLOW if self.slow else 1)
        return max(1, min(limit, self.seconds + self.GRACE - self.spent()))
