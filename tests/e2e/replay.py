"""llm-opt replay: its forms of report, and what it refuses. Needs no data."""
import gzip
import json
import os
import pty
import re
import subprocess

from common import LLM_OPT, check, run

with open("azure.csv", "w") as file:
    file.write("TIMESTAMP,ContextTokens,GeneratedTokens\r\n")
    for i in range(120):
        file.write(f"2023-11-16 18:15:{i // 2:02}.{i % 2 * 5}000000,{100 + i * 37 % 900},"
                   f"{1 + i * 11 % 60}\r\n")
with gzip.open("mooncake.jsonl.gz", "wt") as file:
    for i in range(60):
        blocks = [0, 1] + [100 * i + b for b in range(2, 5)]
        file.write(json.dumps({"timestamp": 200 * i, "input_length": 2300, "output_length": 20,
                               "hash_ids": blocks}) + "\n")
with open("model.json", "w") as file:
    json.dump({"model_type": "gemma2", "hidden_size": 256, "num_hidden_layers": 4,
               "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
               "intermediate_size": 512, "vocab_size": 1000, "sliding_window": 128,
               "query_pre_attn_scalar": 64, "attn_logit_softcapping": 50.0,
               "torch_dtype": "bfloat16"}, file)


def report(*arguments):
    result = run("replay", *arguments, "--json")
    check(result.returncode == 0, f"{arguments}: {result.stderr}")
    check(result.stderr == "", f"a progress bar on no terminal: {result.stderr!r}")
    return json.loads(result.stdout)


# All requests end, and nothing is held afterwards, whatever the options.
for options in ([], ["--policy", "priority"], ["--policy", "longest-prefix"],
                ["--policy", "shortest-remaining"], ["--steps-in-flight", "4"],
                ["--spec", "3", "--acceptance", "0.6", "--steps-in-flight", "2"],
                ["--pages", "150", "--check-every", "1"],
                ["--pages", "150", "--host-memory", "1", "--check-every", "1"],
                ["--accelerators", "4", "--accelerator", "a100"], ["--speed", "20"],
                ["--no-prefix-cache"], ["--one-by-one"],
                ["--groups", "model.json", "--pages", "300"]):
    for trace, count in (("azure.csv", 120), ("mooncake.jsonl.gz", 60)):
        facts = report(trace, "--pages", "2000", *options) if "--pages" not in options else \
            report(trace, *options)
        check(facts["finished"] == count and facts["refused"] == 0, f"{trace} {options}: {facts}")
        check(all(group["held_at_end"] == 0 for group in facts["groups"]), f"{trace} {options}")
        check(facts["ttft_s"]["p50"] <= facts["ttft_s"]["p99"], f"{trace} {options}")

# 60 prompts of 143 full pages; 59 find the 64 pages of the two blocks that all share.
facts = report("mooncake.jsonl.gz", "--one-by-one")
check((facts["hit_pages"], facts["queried_pages"]) == (59 * 64, 60 * 143), facts)
check(report("azure.csv", "--spec", "2", "--acceptance", "1")["metrics"]
      ["spec_decode_num_accepted_tokens_total"] > 0, "no draft was accepted")
check(len(report("azure.csv", "--groups", "model.json")["groups"]) == 2, "two layer groups")
check(report("azure.csv", "--limit", "7")["requests"] == 7, "--limit")
fast, slow = report("azure.csv", "--speed", "1000"), report("azure.csv")
check(fast["saturated"] and not slow["saturated"], "saturated at 1000 times the speed only")
check(report("azure.csv")["ttft_s"] == slow["ttft_s"], "two runs give the same report")

# Prompts that come again after others had their pages: with host memory they are found there.
with open("again.jsonl", "w") as file:
    for i in range(40):
        blocks = [100 * (i % 20) + b for b in range(5)]
        file.write(json.dumps({"timestamp": 1000 * i, "input_length": 2300, "output_length": 5,
                               "hash_ids": blocks}) + "\n")
two = report("again.jsonl", "--pages", "1500", "--host-memory", "10", "--check-every", "1")
one = report("again.jsonl", "--pages", "1500", "--host-memory", "10", "--no-second-level")
check(two["metrics"]["prefix_cache_demoted_pages_total"] > 2000, two)
check(two["metrics"]["prefix_cache_host_page_hits_total"] > 2000, two)
check(two["hit_pages"] == 20 * 143, f"all full pages of the second round: {two['hit_pages']}")
check(one["metrics"]["prefix_cache_demoted_pages_total"] == 0 and one["hit_pages"] == 0, one)
text = run("replay", "again.jsonl", "--pages", "1500", "--host-memory", "10").stdout
check(re.search(r"host memory \d+ pages swapped out, \d+ back; \d+ cached pages demoted, \d+ hit",
                text), text)

# On a device, with kernels: the same counts, whatever its times are.
for options in ([], ["--groups", "model.json"], ["--spec", "2", "--steps-in-flight", "2"],
                ["--pages", "90", "--host-memory", "0.001", "--check-every", "1"]):
    facts = report("azure.csv", "--limit", "25", "--device", "cpu", "--speed", "50", *options)
    check(facts["finished"] == 25 and facts["refused"] == 0, f"cpu {options}: {facts}")
    check(all(group["held_at_end"] == 0 for group in facts["groups"]), f"cpu {options}")
    check(facts["metrics"]["generation_tokens_total"] == sum(1 + i * 11 % 60 for i in range(25)),
          f"cpu {options}: the trace's numbers of tokens")
    check("simulated_s" not in facts and facts["accelerator"] == "cpu", f"cpu {options}")

# The simulator runs PTX: no command makes machine code for it. The stand-in for NVRTC tells what it
# was asked for.
if fake := os.environ.get("FAKE_NVRTC"):
    with open("tiny.mlir", "w") as file:
        file.write("func.func @f(%q: tensor<?x?x2x64xf32>, %k: tensor<?x?x2x64xf32>,\n"
                   "    %v: tensor<?x?x2x64xf32>) -> tensor<?x?x2x64xf32> {\n"
                   "  %o = attn.attention %q, %k, %v mask(causal)\n"
                   "       : tensor<?x?x2x64xf32>, tensor<?x?x2x64xf32>, tensor<?x?x2x64xf32>\n"
                   "         -> tensor<?x?x2x64xf32>\n"
                   "  return %o : tensor<?x?x2x64xf32>\n}\n")
    os.environ |= {"LLMOPT_NVRTC": fake, "FAKE_NVRTC_RESULT": "6", "FAKE_NVRTC_LOG": "no"}
    for command in (["replay", "azure.csv"], ["verify", "tiny.mlir"], ["explain", "tiny.mlir"],
                    ["bench", "tiny.mlir", "--shape", "q=1,kv=1"], ["run", "tiny.mlir", "--json"],
                    ["fuzz", "--count", "1"], ["demo", "model.json"]):
        result = run(*command, "--device", "sim")
        check(result.returncode == 1 and "does not compile for compute_80" in result.stderr,
              f"{command}: {result}")
    for name in ("LLMOPT_NVRTC", "FAKE_NVRTC_RESULT", "FAKE_NVRTC_LOG"):
        del os.environ[name]

# Killed in its steps and started again: what the killed one left serves, and nothing is missed.
# Its terminal says when a step has run: the progress bar is drawn after the first one.
terminal, theirs = pty.openpty()
killed = subprocess.Popen([LLM_OPT, "replay", "azure.csv", "--device", "cpu"],
                          stdout=subprocess.DEVNULL, stderr=theirs)
os.close(theirs)
seen = os.read(terminal, 100)
check(seen.startswith(b"\r["), f"a progress bar: {seen}")
check(killed.poll() is None, "it was killed while it ran")
killed.kill()
killed.wait()
os.close(terminal)
facts = report("azure.csv", "--limit", "60", "--device", "cpu")
check(facts["finished"] == 60 and all(group["held_at_end"] == 0 for group in facts["groups"]),
      f"after a kill: {facts}")

# The text, the page, the timeline, the metrics.
result = run("replay", "azure.csv", "--speed", "1000", "--html", "page.html", "--timeline",
             "steps.json", "--prometheus", "metrics.txt")
check(result.returncode == 0, result.stderr)
for part in ("saturated", "TTFT", "TPOT", "ITL", "queue time", "goodput", "throughput",
             "prefix hits", "preemptions", "pages", "host", "p50", "p90", "p99"):
    check(part in result.stdout, f"the report lacks '{part}':\n{result.stdout}")
with open("page.html") as file:
    page = file.read()
check(page.count("<svg") == 3 and "goodput" in page.lower(), "three plots")
check(not re.search(r"<script|https?://|<link|<img", page), "the page needs another file")
check(len(page) < 100_000, f"the page has {len(page)} bytes")
with open("steps.json") as file:
    check(len(json.load(file)["traceEvents"]) > 100, "a timeline of all steps")
with open("metrics.txt") as file:
    check("llmopt:time_to_first_token_seconds_bucket" in file.read(), "Prometheus' format")

# Blank lines of a CSV are skipped like those of JSON lines; other names of the vocabulary's size.
with open("azure.csv") as file, open("blank.csv", "w") as blank:
    blank.write(file.read().replace("\n", "\n\n") + "\r\n")
check(report("blank.csv", "--limit", "119")["requests"] == 119, "blank lines count")
check(report("blank.csv")["ttft_s"] == slow["ttft_s"], "blank lines change nothing")
with open("model.json") as file:
    model = json.load(file)
with open("novocab.json", "w") as file:
    json.dump({key: model[key] for key in model if key != "vocab_size"}, file)
with open("padded.json", "w") as file:
    json.dump({"padded_vocab_size" if key == "vocab_size" else key: model[key] for key in model},
              file)
with open("nested.json", "w") as file:
    json.dump({"model_type": "gemma3", "text_config": {**model, "model_type": "gemma3_text"}}, file)
with open("hybrid.json", "w") as file:
    json.dump({"model_type": "nemotron_h", "hybrid_override_pattern": "M*ME", "hidden_size": 256,
               "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
               "head_dim": 64, "intermediate_size": 512, "vocab_size": 1000,
               "torch_dtype": "bfloat16"}, file)
with open("dense.json", "w") as file: # the same without Mamba: its other layers keep nothing
    json.dump({**json.load(open("hybrid.json")), "hybrid_override_pattern": "-*-E"}, file)
for config in ("padded.json", "nested.json", "dense.json"):
    check(report("azure.csv", "--groups", config, "--limit", "7")["finished"] == 7, config)

# Mistakes: one line on stderr, nothing on stdout.
with open("bad.csv", "w") as file:
    file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,12,x\n")
with open("text", "w") as file:
    file.write("once upon a time\n")
REFUSED = [
    (["absent.csv"], "absent.csv: No such file or directory"),
    (["bad.csv"], "bad.csv:2: GeneratedTokens is 'x'; an integer from 0 to 2147483647 is allowed"),
    (["azure.csv", "--policy", "lifo"], "policy 'lifo' is unknown; fcfs, priority, longest-prefix "
     "and shortest-remaining are known"),
    (["azure.csv", "--accelerator", "tpu"], "accelerator 'tpu' is unknown; known are a100, h100, "
     "h200, b200, l40s, rtx4090"),
    (["azure.csv", "--rate", "3"], "azure.csv: a rate of 3 requests/s was given, but this trace has "
     "arrival times; scale them with --speed"),
    *[(["azure.csv", option, value], f"speed {speed}, acceptance {acceptance}; a speed above 0 and "
       "up to 1e+09 and an acceptance from 0 to 1 are allowed")
      for option, value, speed, acceptance in (
          ("--speed", "0", "0", "0"), ("--speed", "nan", "nan", "0"), ("--speed", "inf", "inf", "0"),
          ("--acceptance", "2", "1", "2"), ("--acceptance", "nan", "1", "nan"))],
    *[(["azure.csv", option, value], f"host time {host} s, launch time {launch} s, goals {first} and "
       f"{each} s; each may be 0 to 1e+06 s")
      for option, value, host, launch, first, each in (
          ("--host-time", "-1", "-1e-06", "0.0002", "2", "0.1"),
          ("--launch-time", "nan", "5e-05", "nan", "2", "0.1"),
          ("--launch-time", "-1", "5e-05", "-1", "2", "0.1"),
          ("--ttft-goal", "nan", "5e-05", "0.0002", "nan", "0.1"),
          ("--tpot-goal", "-1", "5e-05", "0.0002", "2", "-1"))],
    *[(["azure.csv", "--rate", rate], f"azure.csv: a rate of {rate} requests/s; more than 0, up to "
       "1e9, are allowed, and 0 for all at once") for rate in ("nan", "-1", "inf")],
    *[(["azure.csv", "--host-memory", size], f"{size} GB of host memory; 0 to 100000 are allowed")
      for size in ("-1", "nan", "1e+300", "1e+06")],
    (["azure.csv", "--accelerators", "9999999"], "9999999 accelerators; 1 to 1024 are allowed"),
    (["azure.csv", "--accelerators", "9"], "9 accelerators share 8 KV heads, one each at least; "
     "1 to 8 are allowed"),
    (["azure.csv", "--groups", "model.json", "--accelerators", "4"], "4 accelerators share 2 KV "
     "heads, one each at least; 1 to 2 are allowed"),
    (["azure.csv", "--acceptance", "0.6"], "an acceptance of 0.6 without drafts; say how many "
     "there are"),
    (["azure.csv", "--speed", "1e-300"], "at speed 1e-300 the last request comes after 5.95e+301 s; "
     "up to 1e+09 s are allowed; raise the speed"),
    *[(["azure.csv", "--pages", pages], f"{pages} pages; 1 to 2147483646 are allowed")
      for pages in ("2147483647", "8796093022308", "9223372036854775807")],
    (["azure.csv", "--pages", "18446744073709551615"], "--pages: 18446744073709551615 was given; 1 to "
     "9223372036854775807 are wanted"),
    *[(["azure.csv", "--steps-in-flight", steps], f"{steps} steps in flight; allowed are 1 to 16")
      for steps in ("17", "64", "1000000")],
    (["azure.csv", "--seed", "-1"], "--seed: -1 was given; 0 or more is wanted"),
    (["azure.csv", "--groups", "hybrid.json"], "hybrid.json: 2 of 4 layers keep a recurrent state "
     "instead of keys, which has no pages; served are models whose layers all attend or keep "
     "nothing"),
    (["azure.csv", "--groups", "novocab.json"], "novocab.json: vocab_size is missing; the cost "
     "model needs it"),
    # Before anything is read.
    *[(["absent.csv", option, "absent/page.html"], "absent/page.html: No such file or directory")
      for option in ("--html", "--timeline", "--prometheus")],
    (["absent.csv", "--html", "."], "'.' is no regular file; name a file to write"),
    (["azure.csv", "--budget", "100"], "a budget of 100 tokens a step; 256 running requests with 0 "
     "drafts each need more than 256; raise the budget or lower the number of requests"),
]
for arguments, message in REFUSED:
    result = run("replay", *arguments)
    check((result.returncode, result.stdout, result.stderr) ==
          (1, "", f"llm-opt replay: {message}\n"), f"{arguments}: {result}")
# What the bookkeeping would take is named with its option, on every machine.
for option, value in (("--pages", "2147483646"), ("--budget", "4294967295"),
                      ("--max-waiting", "4294967295")):
    result = run("replay", "azure.csv", option, value)
    check(result.returncode == 1 and result.stdout == "" and
          re.fullmatch(rf"llm-opt replay: no memory: .*{option} {value} asks for about \d+ GB; give a "
                       r"smaller number\n", result.stderr), f"{option}: {result}")
result = run("replay", "text")
check(result.returncode == 1 and "text:1: the line begins with 'once upon a time'; a trace is"
      in result.stderr, result.stderr)
result = run("replay", "azure.csv", "--html", "absent/page.html")
check(result.returncode == 1 and "absent/page.html" in result.stderr, result.stderr)
