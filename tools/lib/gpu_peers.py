"""Attention of other libraries on the shapes of tools/gpu-check, where Python can import them:
PyTorch's SDPA (flash, cuDNN) and FlexAttention, flash-attn, FlashInfer. What is absent is
reported by name."""
import importlib
import statistics

PEERS = ("torch", "flash_attn", "flashinfer")


def importable():
    found = {}
    for name in PEERS:
        try:
            module = importlib.import_module(name)
            found[name] = f"version {getattr(module, '__version__', 'unknown')}"
        except Exception as error:  # a package that is there may fail in any way
            found[name] = f"absent ({type(error).__name__}: {error})"
    return found


def timed(torch, work, repeats=20):
    """Median milliseconds on the device."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def matmul_rate(torch):
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * n ** 3 / timed(torch, lambda: a @ b) * 1e-9


def prefill_peers(torch, length, dim, causal, heads):
    """Name and function of each peer for one prefill."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    q, k, v = (torch.randn(1, heads, length, dim, device="cuda", dtype=torch.bfloat16)
               for _ in range(3))

    def backend(kind):
        def work():
            with sdpa_kernel(kind):
                return sdpa(q, k, v, is_causal=causal)
        return work

    yield "torch flash", backend(SDPBackend.FLASH_ATTENTION)
    yield "torch cuDNN", backend(SDPBackend.CUDNN_ATTENTION)
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length) \
        if causal else None
    compiled = torch.compile(flex_attention)
    yield "FlexAttention", lambda: compiled(q, k, v, block_mask=mask)
    if importable()["flash_attn"].startswith("version"):
        from flash_attn import flash_attn_func
        a, b, c = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        yield "flash-attn", lambda: flash_attn_func(a, b, c, causal=causal)


def decode_peers(torch, batch, keys, page, sizes):
    heads, kv_heads, dim = sizes
    pages = -(-keys // page)
    if not importable()["flashinfer"].startswith("version"):
        return
    import flashinfer
    cache = torch.randn(batch * pages, 2, page, kv_heads, dim, device="cuda", dtype=torch.bfloat16)
    q = torch.randn(batch, heads, dim, device="cuda", dtype=torch.bfloat16)
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    indptr = torch.arange(0, (batch + 1) * pages, pages, dtype=torch.int32, device="cuda")
    indices = torch.randperm(batch * pages, dtype=torch.int32, device="cuda")
    last = torch.full((batch,), (keys - 1) % page + 1, dtype=torch.int32, device="cuda")
    wrapper.plan(indptr, indices, last, heads, kv_heads, dim, page, data_type=torch.bfloat16,
                 q_data_type=torch.bfloat16)
    yield "FlashInfer", lambda: wrapper.run(q, cache)


def run(gpu_check, prefills, decodes, sizes):
    """What was found, and milliseconds by case and peer. A peer that fails is told, no more."""
    found = importable()
    result = {"found": found, "rows": {}}
    if not found["torch"].startswith("version"):
        return result
    import torch
    if not torch.cuda.is_available() or gpu_check.report["substitute"]:
        found["torch"] += "; it finds no GPU"
        return result
    from gpu_bench import describe
    result["matmul_tflop_per_s"] = matmul_rate(torch)

    def measure(row, peers):
        times = result["rows"].setdefault(describe(row), {})
        iterator = iter(peers)
        while not gpu_check.late():
            name = "?"
            try:
                name, work = next(iterator)
                times[name] = timed(torch, work)
            except StopIteration:
                return
            except Exception as error:
                found[f"{name}, {describe(row)}"] = f"{type(error).__name__}: {error}"

    for length, dim, causal in prefills:
        measure({"case": "prefill", "length": length, "dim": dim, "causal": causal},
                prefill_peers(torch, length, dim, causal, sizes[0] // 2))
    for batch, keys, page in decodes:
        measure({"case": "decode", "batch": batch, "keys": keys, "page": page, "graph": True},
                decode_peers(torch, batch, keys, page, sizes))
    return result
