"""A spec compiled to a bundle, loaded in another process, run on .npy arrays and held
against attention written in plain Python; bundles with a fault are refused."""
import math
import random

from common import check, read_npy, run, write_npy

HEADS, KV_HEADS, D, PAGE = 4, 2, 8, 4
CACHE = f"!attn.kv_cache<{KV_HEADS}x{D}xf32, page = {PAGE}>"
WINDOW = 6
QUERIES, KEYS = [3, 1, 0], [9, 14, 2]

SPEC = f"""
func.func @step(%q: tensor<?x{HEADS}x{D}xf32>, %kv: {CACHE}, %seq: !attn.sequences)
    -> (tensor<?x{HEADS}x{D}xf32>, tensor<?x{HEADS}xf32>) {{
  %o, %lse = attn.attention %q, %kv, %seq mask(causal and window<{WINDOW}>) scale(0.5)
       : tensor<?x{HEADS}x{D}xf32>, {CACHE}, !attn.sequences
         -> tensor<?x{HEADS}x{D}xf32>, tensor<?x{HEADS}xf32>
  return %o, %lse : tensor<?x{HEADS}x{D}xf32>, tensor<?x{HEADS}xf32>
}}
"""


def sums(lengths):
    """0 and the running sums."""
    total = [0]
    for length in lengths:
        total.append(total[-1] + length)
    return total


class Inputs:
    """The arrays of a call, and their files."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.tokens = sum(QUERIES)
        self.columns = max(-(-keys // PAGE) for keys in KEYS)
        pages = sum(-(-keys // PAGE) for keys in KEYS)
        order = draw.sample(range(pages + 2), pages)
        self.table = []
        for keys in KEYS:
            count = -(-keys // PAGE)
            self.table.append([order.pop() for _ in range(count)])
        size = (pages + 2) * PAGE * KV_HEADS * D
        self.q = [draw.gauss(0, 1) for _ in range(self.tokens * HEADS * D)]
        self.k = [draw.gauss(0, 1) for _ in range(size)]
        self.v = [draw.gauss(0, 1) for _ in range(size)]
        pool = (pages + 2, PAGE, KV_HEADS, D)
        write_npy("q.npy", (self.tokens, HEADS, D), self.q)
        write_npy("k_pool.npy", pool, self.k)
        write_npy("v_pool.npy", pool, self.v)
        flat = [page for row in self.table for page in row + [-1] * (self.columns - len(row))]
        write_npy("block_table.npy", (len(KEYS), self.columns), flat, "<i4")
        write_npy("cu_seqlens_q.npy", (len(KEYS) + 1,), sums(QUERIES), "<i4")
        write_npy("kv_len.npy", (len(KEYS),), KEYS, "<i4")

    def slot(self, sequence, key, head):
        """Offset of a key's row in a pool."""
        page = self.table[sequence][key // PAGE]
        return ((page * PAGE + key % PAGE) * KV_HEADS + head) * D


NAMES = ["q", "k_pool", "v_pool", "block_table", "cu_seqlens_q", "kv_len"]


def expected(inputs, window, scale):
    """Output and LSE, row by row."""
    outputs, lses, first = [], [], sums(QUERIES)
    for sequence, (queries, keys) in enumerate(zip(QUERIES, KEYS)):
        for query in range(queries):
            for head in range(HEADS):
                at = ((first[sequence] + query) * HEADS + head) * D
                q = inputs.q[at:at + D]
                position = query + keys - queries
                seen = range(max(0, position - window + 1), position + 1)
                scores, values = [], []
                for key in seen:
                    row = inputs.slot(sequence, key, head * KV_HEADS // HEADS)
                    scores.append(scale * sum(a * b for a, b in zip(q, inputs.k[row:row + D])))
                    values.append(inputs.v[row:row + D])
                top = max(scores)
                weights = [math.exp(score - top) for score in scores]
                outputs += [sum(w * v[c] for w, v in zip(weights, values)) / sum(weights)
                            for c in range(D)]
                lses.append(top + math.log(sum(weights)))
    return outputs, lses


def execute(program, *options):
    """Output and LSE of `llm-opt run`."""
    files = [part for name in NAMES for part in ("--input", f"{name}={name}.npy")]
    result = run("run", program, *files, "--output", "o=o.npy", "--output", "lse=lse.npy", *options)
    check(result.returncode == 0 and not result.stderr, f"{program}: {result.stderr}")
    (o_shape, o), (lse_shape, lse) = read_npy("o.npy"), read_npy("lse.npy")
    check(o_shape == (sum(QUERIES), HEADS, D), f"shape of o is {o_shape}")
    check(lse_shape == (sum(QUERIES), HEADS), f"shape of lse is {lse_shape}")
    return o, lse


def compare(got, want, what):
    """Ends the test where two lists of numbers differ by more than rounding."""
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        check(abs(a - b) <= 1e-5 * (1 + abs(b)), f"{what}, element {i}: got {a}, want {b}")


def refused(content, pattern):
    """A bundle with this content ends with exit code 1 and one line that says why."""
    with open("bad.bundle", "wb") as out:
        out.write(content)
    result = run("run", "bad.bundle", "--json")
    lines = result.stderr.splitlines()
    check(result.returncode == 1, f"{pattern}: exit code {result.returncode}")
    check(len(lines) == 1 and lines[0].startswith("llm-opt run: ") and pattern in lines[0],
          f"want one line with '{pattern}', got {result.stderr!r}")
    check(not result.stdout, result.stdout)


with open("spec.mlir", "w") as spec_file:
    spec_file.write(SPEC)
compiled = run("compile", "spec.mlir", "--emit", "bundle", "-o", "spec.bundle")
check(compiled.returncode == 0 and not compiled.stderr, compiled.stderr)

arrays = Inputs(1)
first_o, first_lse = execute("spec.bundle")
want_o, want_lse = expected(arrays, WINDOW, 0.5)
compare(first_o, want_o, "o")
compare(first_lse, want_lse, "lse")

# The spec itself gives the bits of its bundle; numbers are read at run time.
check(execute("spec.mlir") == (first_o, first_lse), "a bundle and its spec differ")
other_o, other_lse = execute("spec.bundle", "--set", "window=2", "--set", "scale=0.25")
want_o, want_lse = expected(arrays, 2, 0.25)
compare(other_o, want_o, "o with window 2")
compare(other_lse, want_lse, "lse with window 2")

with open("spec.bundle", "rb") as bundle_file:
    good = bundle_file.read()
flipped = bytearray(good)
flipped[len(good) // 2] ^= 1
refused(bytes(flipped), "checksum")
refused(good[:len(good) // 2], "bad.bundle")
refused(b"", "bad.bundle")
refused(b"X" + good[1:], "bad.bundle")
newer = bytearray(good)
newer[8] += 1  # format version
refused(bytes(newer), "version")
print("bundle: saved, loaded, run; 5 faults refused")
