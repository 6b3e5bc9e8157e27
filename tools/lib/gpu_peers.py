"""Attention of other libraries on the calls that `llm-opt bench --save` left: which are asked, and
what becomes of their answers. The libraries live in gpu_peer_worker.py, a process of its own: it
may hang or die."""
import pathlib
import sys

import gpu_child
import gpu_plan

WORKER = [sys.executable, "-B", str(pathlib.Path(__file__).with_name("gpu_peer_worker.py"))]

# By case: name of a peer, and the package that it is in.
PEERS = {"prefill": (("torch flash", "torch"), ("torch cuDNN", "torch"), ("FlexAttention", "torch"),
                     ("flash-attn", "flash_attn")),
         "decode": (("torch flash, contiguous KV", "torch"), ("FlashInfer", "flashinfer"))}

# Results of two kernels, both rounded to bf16, differ by about 2^-8 of the largest element of a
# row (a query and head). A wrong page or mask changes a row by as much as it holds.
AGREE = 2.0 ** -6


def is_there(state):
    return state.startswith("version")


def peers_of(case, found):
    return [name for name, package in PEERS[case["case"]] if is_there(found.get(package, ""))]


def ask_which(worker, substitute):
    """What Python can import, and whether that is of use here."""
    answer = worker.ask({"ask": "found"}, 60)
    found = answer.get("found", {"torch": f"absent ({answer.get('error')})"})
    usable = is_there(found.get("torch", "")) and answer.get("gpu", False) and not substitute
    if is_there(found.get("torch", "")) and not usable:
        found["torch"] += "; it finds no GPU"
    return {"found": found, "usable": usable, "rows": {}, "differing": []}


def note(result, case, name, answer):
    """Keeps an answer. A peer that fails is told, no more; one whose numbers differ is a failure."""
    key = gpu_plan.describe(case)
    if "error" in answer:
        result["found"][f"{name}, {key}"] = answer["error"]
        return
    result["rows"].setdefault(key, {})[name] = answer["ms"]
    if not answer["worst"] <= AGREE:  # a NaN differs
        result["differing"].append(f"{name}, {key}: {answer['worst']:.3g} of a row's largest "
                                   f"element; {AGREE:.3g} may be")


def run(result, worker, saved, budget, skipped):
    """Asks every peer about every saved call: pairs of case and folder."""
    if not result["usable"]:
        return
    answer = worker.ask({"ask": "matmul"}, budget.timeout("peers"))
    result["matmul"] = answer
    for case, folder in saved:
        for name in peers_of(case, result["found"]):
            if budget.late("peers"):
                skipped.append(f"{name}, {gpu_plan.describe(case)}")
                continue
            question = {"ask": "time", "case": case, "peer": name, "folder": str(folder)}
            note(result, case, name, worker.ask(question, budget.timeout("peers")))


def matmul_text(result):
    """The card's matmul rate, or why there is none."""
    rate = result.get("matmul", {}).get("tflop_per_s")
    if rate:
        return f"torch.matmul, bf16: {rate:.0f} TFLOP/s."
    why = result.get("matmul", {}).get("error") or result.get("found", {}).get("torch", "absent")
    return f"The card's matmul rate was not measured, which takes torch: {why}."
