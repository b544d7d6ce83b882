"""Run all benchmarks, or those named: attention, encoder, slots, training, updates,
decoder, generation, methods, data, metrics."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from benchmarks import inference, updates
from benchmarks.data import data
from benchmarks.methods import methods
from benchmarks.metrics import metrics
from benchmarks.training import training
from vonet.performance import keep_freed_memory

TARGETS = {
    "attention_vs_plain_k11": 2.0,
    "attention_vs_recurrent_k11": 2.0,
    "encoder_vs_plain": 1.7,
    "encoder_peak_share": 0.45,
    "encoder_k24_vs_k4": 2.3,
    "train_vs_plain": 1.4,
    "train_memory_share": 0.75,
    "update_vs_before_sprites": 1.6,
    "update_vs_before_tokens": 1.6,
    "update_vs_before_laptop": 1.4,
    "object_decoder_vs_broadcast": 3.0,
    "generation_cached_vs_uncached": 60.0,
    "generation_batch8_vs_uncached": 150.0,
    "world_a_per_minute": 300.0,
    "world_e_per_minute": 100.0,
    "world_spmot_per_minute": 3000.0,
    "shards_per_cpu_second": 40.0,
    "counts_vs_one_hot": 10.0,
}
SMALLER_IS_BETTER = {"train_memory_share", "encoder_k24_vs_k4"}


def main() -> None:
    benchmarks = {
        "attention": lambda: inference.attention(Path("bench-attention")),
        "encoder": inference.encoder,
        "slots": updates.slots,
        "training": training,
        "updates": updates.updates,
        "decoder": updates.object_decoder,
        "generation": inference.generation,
        "methods": methods,
        "data": data,
        "metrics": metrics,
    }
    names = sys.argv[1:] or list(benchmarks)
    if unknown := set(names) - set(benchmarks):
        sys.exit(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(benchmarks)}")
    keep_freed_memory()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    ratios = {name: ratio for chosen in names for name, ratio in benchmarks[chosen]().items()}
    print("\nRatios and rates, and their targets")
    for name, ratio in ratios.items():
        reached = ratio <= TARGETS[name] if name in SMALLER_IS_BETTER else ratio >= TARGETS[name]
        sign = "≤" if name in SMALLER_IS_BETTER else "≥"
        print(f"{name:32} {ratio:7.2f}  ({sign} {TARGETS[name]:g}{'' if reached else ', not reached'})")
    results = Path("bench.json")
    aside = results.with_name("bench.json.part")
    earlier = json.loads(results.read_text()) if results.exists() else {}
    aside.write_text(json.dumps({**earlier, **ratios}, indent=2) + "\n")
    aside.replace(results)


if __name__ == "__main__":
    main()
