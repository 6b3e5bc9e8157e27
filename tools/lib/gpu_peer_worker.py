"""Times PyTorch's SDPA (flash, cuDNN) and FlexAttention, flash-attn and FlashInfer on calls that
`llm-opt bench --save` wrote, and compares what they compute. Started by gpu_peers.py: a question
a line in, an answer a line out, as JSON."""
import ast
import importlib
import json
import math
import os
import pathlib
import statistics
import struct
import sys

PACKAGES = ("torch", "flash_attn", "flashinfer")
DESCRIPTIONS = {"V2": "bfloat16", "f2": "float16", "f4": "float32", "i4": "int32", "i8": "int64"}


def importable():
    found = {}
    for name in PACKAGES:
        try:
            module = importlib.import_module(name)
            found[name] = f"version {getattr(module, '__version__', 'unknown')}"
        except Exception as error:  # a package that is there may fail in any way
            found[name] = f"absent ({type(error).__name__}: {error})"
    return found


def read_npy(path):
    """Type by torch's name, shape, and bytes. NumPy may be absent, and knows no bf16."""
    content = pathlib.Path(path).read_bytes()
    wide = content[6] > 1
    size = struct.unpack_from("<I" if wide else "<H", content, 8)[0]
    start = (12 if wide else 10) + size
    header = ast.literal_eval(content[start - size:start].decode())
    return DESCRIPTIONS[header["descr"][1:]], header["shape"], bytearray(content[start:])


def copies(start, block, elements):
    """How often a block must be repeated for `elements` from `start` on."""
    return -(-(start + elements) // block)


class Arrays:
    """The arrays of a saved call, on the GPU."""

    def __init__(self, torch, folder):
        self.torch, self.folder = torch, pathlib.Path(folder)
        self.blocks = json.loads((self.folder / "call.json").read_text())["arrays"]

    def file(self, name):
        kind, shape, content = read_npy(self.folder / f"{name}.npy")
        flat = self.torch.frombuffer(content, dtype=getattr(self.torch, kind))
        return flat.view(shape).cuda()

    def __getitem__(self, name):
        if name not in self.blocks:
            return self.file(name)
        facts = self.blocks[name]
        block, elements = self.file(f"block-{facts['type']}"), math.prod(facts["shape"])
        begin = facts["start"]
        flat = block.repeat(copies(begin, block.numel(), elements))
        return flat[begin:begin + elements].view(facts["shape"])


def timed(torch, work, repeats=20):
    """Median milliseconds on the device, one run right after another."""
    for _ in range(3):
        work()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    events[-1].synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:]))


def worst(a, b):
    """The largest difference in a row, as a share of the row's largest element."""
    a, b = a.float(), b.float()
    return ((a - b).abs().amax(-1) / b.abs().amax(-1).clamp_min(1e-30)).max().item()


def matmul_rate(torch):
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * n ** 3 / timed(torch, lambda: a @ b) * 1e-9


class Flex:
    """FlexAttention, compiled once for each head size and kind of mask, for any length."""

    def __init__(self, torch):
        from torch.nn.attention import flex_attention
        self.torch, self.module, self.compiled = torch, flex_attention, {}
        config = importlib.import_module("torch._dynamo").config
        for name in ("recompile_limit", "cache_size_limit"):
            if hasattr(config, name):
                setattr(config, name, 256)

    def work(self, case, q, k, v):
        key = case["dim"], case["causal"]
        if key not in self.compiled:
            self.compiled[key] = self.torch.compile(self.module.flex_attention, dynamic=True)
        mask = None
        if case["causal"]:
            mask = self.module.create_block_mask(lambda b, h, i, j: i >= j, None, None,
                                                 case["length"], case["length"])
        return lambda: self.compiled[key](q, k, v, block_mask=mask)


def sdpa(torch, kind, q, k, v, **options):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def work():
        with sdpa_kernel(getattr(SDPBackend, kind)):
            return scaled_dot_product_attention(q, k, v, **options)
    return work


def prefill(worker, case, peer, arrays):
    """What computes a prefill, and what makes its result (batch, length, heads, dim)."""
    torch = worker.torch
    if peer == "flash-attn":
        from flash_attn import flash_attn_func
        q, k, v = (arrays[name] for name in "qkv")
        return lambda: flash_attn_func(q, k, v, causal=case["causal"]), lambda o: o
    q, k, v = (arrays[name].transpose(1, 2).contiguous() for name in "qkv")
    if peer == "FlexAttention":
        worker.flex = worker.flex or Flex(torch)
        work = worker.flex.work(case, q, k, v)
    else:
        kind = "FLASH_ATTENTION" if peer == "torch flash" else "CUDNN_ATTENTION"
        work = sdpa(torch, kind, q, k, v, is_causal=case["causal"])
    return work, lambda o: o.transpose(1, 2)


def gathered(arrays, name, case):
    """The pages of a pool in the order of the table: (batch, keys, heads, dim)."""
    pages = -(-case["keys"] // case["page"])
    table = arrays["block_table"][:, :pages].long()
    return arrays[name][table].flatten(1, 2)[:, :case["keys"]]


def decode(worker, case, peer, arrays):
    """What computes a decode step, and what makes its result (batch, heads, dim)."""
    torch, q = worker.torch, arrays["q"]
    if peer == "FlashInfer":
        return flashinfer(torch, case, q, arrays), lambda o: o
    need = 1.6 * sum(math.prod(arrays.blocks[f"{name}_pool"]["shape"]) * q.element_size()
                     for name in "kv")
    free = torch.cuda.mem_get_info()[0]
    if need > free:
        raise MemoryError(f"contiguous copies of K and V take {need / 2**30:.0f} GiB at their "
                          f"peak; {free / 2**30:.0f} GiB are free")
    k, v = (gathered(arrays, f"{name}_pool", case).transpose(1, 2) for name in "kv")
    # A decode step's one query is the last: it sees every key without a mask.
    return (sdpa(torch, "FLASH_ATTENTION", q.unsqueeze(2), k, v, enable_gqa=True),
            lambda o: o.squeeze(2))


def flashinfer(torch, case, q, arrays):
    library = importlib.import_module("flashinfer")
    keys, page, batch = case["keys"], case["page"], case["batch"]
    pages = -(-keys // page)
    cache = arrays["k_pool"], arrays["v_pool"]
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    indptr = torch.arange(0, (batch + 1) * pages, pages, dtype=torch.int32, device="cuda")
    indices = arrays["block_table"][:, :pages].flatten().contiguous()
    last = torch.full((batch,), (keys - 1) % page + 1, dtype=torch.int32, device="cuda")
    heads, kv_heads, dim = q.shape[1], cache[0].shape[2], q.shape[2]
    wrapper.plan(indptr, indices, last, heads, kv_heads, dim, page, data_type=q.dtype,
                 q_data_type=q.dtype)
    return lambda: wrapper.run(q, cache)


class Peers:
    def __init__(self):
        self.found, self.torch, self.flex = importable(), None, None
        if self.found["torch"].startswith("version"):
            self.torch = importlib.import_module("torch")

    def answer(self, question):
        torch = self.torch
        if question["ask"] == "found":
            return {"found": self.found, "gpu": bool(torch and torch.cuda.is_available())}
        if question["ask"] == "matmul":
            return {"tflop_per_s": matmul_rate(torch)}
        case, arrays = question["case"], Arrays(torch, question["folder"])
        kind = prefill if case["case"] == "prefill" else decode
        work, result = kind(self, case, question["peer"], arrays)
        with torch.no_grad():
            off = worst(result(work()), arrays["o"])
            return {"ms": timed(torch, work), "worst": off}

    def reply(self, question):
        try:
            return self.answer(question)
        except Exception as error:
            lines = str(error).splitlines() or [""]
            return {"error": f"{type(error).__name__}: {lines[0]}"}


def main():
    # Libraries print what they like; answers go where they can't.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peers = Peers()
    for line in sys.stdin:
        reply = peers.reply(json.loads(line))
        if peers.torch and peers.torch.cuda.is_initialized():
            try:
                peers.torch.cuda.empty_cache()
            except Exception:  # the card's context is lost
                pass
        print(json.dumps(reply), file=answers, flush=True)
        if "CUDA error" in reply.get("error", ""):
            break  # whatever is asked next would fail too; a new process will not


if __name__ == "__main__":
    main()
