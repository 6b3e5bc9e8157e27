"""Kernels in Triton: its compiler, not ours, makes the PTX that the simulator then runs."""
import triton
import triton.language as tl


@triton.jit
def softmax(out, x, columns, stride, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    values = tl.load(x + row * stride + column, mask=column < columns, other=-float("inf"))
    values -= tl.max(values, axis=0)
    weights = tl.exp(values)
    tl.store(out + row * stride + column, weights / tl.sum(weights, axis=0),
             mask=column < columns)


@triton.jit
def matmul(a, b, c, rows, columns, depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
           DEPTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for begin in range(0, depth, DEPTH):
        k = begin + tl.arange(0, DEPTH)
        left = tl.load(a + row[:, None] * depth + k[None, :],
                       mask=(row[:, None] < rows) & (k[None, :] < depth), other=0.0)
        right = tl.load(b + k[:, None] * columns + column[None, :],
                        mask=(k[:, None] < depth) & (column[None, :] < columns), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * columns + column[None, :], total,
             mask=(row[:, None] < rows) & (column[None, :] < columns))


@triton.jit
def matmul_descriptors(a, b, c, depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
                       DEPTH: tl.constexpr):
    """The same from and to tensor descriptors: the bulk copy engine of sm_90."""
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for begin in range(0, depth, DEPTH):
        total = tl.dot(a.load([row, begin]), b.load([begin, column]), total)
    c.store([row, column], total)


@triton.jit
def attention(q, k, v, out, queries, keys, scale, ROWS: tl.constexpr, TILE: tl.constexpr,
              DIM: tl.constexpr):
    """Causal from the top left; tensors are (head, row, DIM)."""
    head = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, DIM)
    query = tl.load(q + head * queries * DIM + row[:, None] * DIM + d[None, :],
                    mask=row[:, None] < queries, other=0.0)
    top = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    result = tl.zeros((ROWS, DIM), dtype=tl.float32)
    end = tl.minimum(keys, (tl.program_id(0) + 1) * ROWS)
    for begin in range(0, end, TILE):
        key = begin + tl.arange(0, TILE)
        place = head * keys * DIM + key[:, None] * DIM + d[None, :]
        rows_k = tl.load(k + place, mask=key[:, None] < keys, other=0.0)
        score = tl.dot(query, tl.trans(rows_k)) * scale
        score = tl.where((key[None, :] <= row[:, None]) & (key[None, :] < keys), score,
                         -float("inf"))
        new = tl.maximum(top, tl.max(score, axis=1))
        weight = tl.exp2(score - new[:, None])
        shrink = tl.exp2(top - new)
        total = total * shrink + tl.sum(weight, axis=1)
        rows_v = tl.load(v + place, mask=key[:, None] < keys, other=0.0)
        result = result * shrink[:, None] + tl.dot(weight.to(rows_v.dtype), rows_v)
        top = new
    tl.store(out + head * queries * DIM + row[:, None] * DIM + d[None, :],
             result / total[:, None], mask=row[:, None] < queries)
