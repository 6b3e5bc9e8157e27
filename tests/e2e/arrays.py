"""Arrays of `llm-opt run` as NumPy saves them: bfloat16, int64 lengths, rows of padding."""
import math
import struct

from common import check, read_npy, run, write_npy

HEADS, D, PAGE = 2, 4, 4
CACHE = f"!attn.kv_cache<1x{D}xbf16, page = {PAGE}>"
with open("spec.mlir", "w") as file:
    file.write(f"""func.func @f(%q: tensor<?x{HEADS}x{D}xbf16>, %kv: {CACHE}, %s: !attn.sequences)
    -> (tensor<?x{HEADS}x{D}xbf16>, tensor<?x{HEADS}xf32>) {{
  %o, %lse = attn.attention %q, %kv, %s mask(causal) scale(0.5)
       : tensor<?x{HEADS}x{D}xbf16>, {CACHE}, !attn.sequences
         -> tensor<?x{HEADS}x{D}xbf16>, tensor<?x{HEADS}xf32>
  return %o, %lse : tensor<?x{HEADS}x{D}xbf16>, tensor<?x{HEADS}xf32>
}}
""")


def bits(values):
    """bfloat16 bits of numbers that it holds exactly."""
    return [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]


def numbers(items):
    return [struct.unpack("<f", struct.pack("<I", item << 16))[0] for item in items]


# Two sequences of one query each; token 2 and 3 of q are padding. All scores are equal, and
# V of key j is j: the output is the mean of the keys, the LSE the score and ln of their number.
TOKENS, KEYS, PADDING = 2, [3, 6], 2
write_npy("q.npy", (TOKENS + PADDING, HEADS, D), bits([1.0] * (TOKENS + PADDING) * HEADS * D), "<V2")
write_npy("k.npy", (4, PAGE, 1, D), bits([0.5] * 4 * PAGE * D), "<V2")
write_npy("v.npy", (4, PAGE, 1, D), bits([float(slot % 8) for slot in range(4 * PAGE) for _ in range(D)]),
          "<V2")
# int64, as NumPy makes lists of integers.
write_npy("table.npy", (2, 2), [0, -1, 2, 3], "<i8")
write_npy("len.npy", (2,), KEYS, "<i8")
write_npy("cu.npy", (3,), [0, 1, 2], "<i8")
files = {"q": "q", "k_pool": "k", "v_pool": "v", "block_table": "table", "kv_len": "len",
         "cu_seqlens_q": "cu"}
inputs = [part for name, path in files.items() for part in ("--input", f"{name}={path}.npy")]
result = run("run", "spec.mlir", *inputs, "--output", "o=o.npy", "--output", "lse=lse.npy")
check(result.returncode == 0, result.stderr)
with open("o.npy", "rb") as file:
    check(b"'<V2'" in file.read(), "bf16 results are saved as two-byte items")
shape, items = read_npy("o.npy")
check(tuple(shape) == (TOKENS + PADDING, HEADS, D), f"shape {shape}")
want = [sum(range(keys)) / keys for keys in KEYS for _ in range(HEADS * D)] + [0] * PADDING * HEADS * D
check(numbers(items) == want, f"{numbers(items)}, not {want}")
_, lse = read_npy("lse.npy")
want = [0.5 * D * 0.5 + math.log(keys) for keys in KEYS for _ in range(HEADS)]
check(all(abs(a - b) < 1e-5 for a, b in zip(lse, want)), f"{lse}, not {want}: natural logarithm")
