"""llm-opt replay on the real traces, whole, and with the layer groups of real models."""
import json

from common import check, data, run

TRACES = ["mooncake_conversation_first5000.jsonl.gz", "mooncake_synthetic_all3993.jsonl.gz",
          "azure2023_conv_first5000.csv.gz", "azure2023_code_first5000.csv.gz",
          "sharegpt_llama3.1_300_blocks16.jsonl.gz",
          "arxiv_summarization_llama2tok_first5000.csv.gz",
          "servegen_deepseek-r1_client_rates.csv.gz"]
MODELS = ["gemma-2-9b.json", "gpt-oss-20b.json"]

for name in TRACES:
    for model in [None, *MODELS]:
        options = ["--groups", data("models", model)] if model else []
        result = run("replay", data("traces", name), "--pages", "20000", "--page-size", "16",
                     "--json", *options)
        check(result.returncode == 0, f"{name} {model}: {result.stderr}")
        facts = json.loads(result.stdout)
        check(facts["finished"] == facts["requests"], f"{name} {model}: {facts['finished']}")
        check(all(group["held_at_end"] == 0 for group in facts["groups"]), f"{name} {model}")
        metrics = facts["metrics"]
        computed = metrics["computed_tokens_total"]
        positions = (metrics["prompt_tokens_total"] + metrics["generation_tokens_total"] -
                     facts["finished"])
        check(computed == positions - metrics["reused_tokens_total"] +
              metrics["recomputed_tokens_total"] + metrics["rejected_tokens_total"] +
              metrics["discarded_tokens_total"], f"{name} {model}: a position too many or few")
        print(name, model or "llama", "ok")
# Azure's conversations come faster than the runs end: many run at once.
result = run("replay", data("traces", TRACES[2]), "--json", "--speed", "12")
check(json.loads(result.stdout)["most_running"] >= 150, "150 requests run at once")
