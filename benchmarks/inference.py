"""Attention, encoder step and generation at the paper's size: 128x128, M = 5."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import take_turns
from tests import plain
from vonet import experiments
from vonet.figures.efficiency import write_attention

SLOTS = (1, 2, 4, 8, 11, 16, 24)
# Seconds of the authors' code for the encoder step on two idle cores of a Xeon, for orientation.
AUTHORS_STEP = {4: 0.141, 11: 0.279, 24: 0.476}
AUTHORS_PICTURE = 101.0


def models():
    fast = experiments.get("vonet-movi-a").build_model(seed=0).eval()
    return fast, plain.PlainVONet(fast)


@torch.no_grad()
def attention(figure: Path) -> dict[str, float]:
    print("\nAttention against the number of slots (128x128, U-Net of 5 levels), milliseconds a frame;")
    print("the recurrence runs the U-Net once for each slot but the last, which takes what is left")
    print(f"{'K':>4} {'ours':>9} {'plain':>9} {'recurrent':>10}")
    fast, slow = models()
    features = fast.backbone(torch.rand(1, 3, 128, 128))
    plain_features = features.contiguous()
    seconds = {}
    for slots in SLOTS:
        context = fast.context(fast.initial_state(1, slots=slots).slots)
        seconds[slots] = take_turns(
            {
                "ours": lambda c=context: fast.attention(features, c),
                "plain": lambda c=context: plain.attention(slow.attention, plain_features, c),
                "recurrent": lambda k=slots: plain.recurrent_attention(slow.attention, plain_features, k),
            },
            rounds=15,
        )
        print(f"{slots:>4} " + " ".join(f"{1e3 * seconds[slots][form]:9.1f}" for form in seconds[slots]))
    labels = {
        "MONet's recurrence": "recurrent",
        "parallel, as the paper writes it": "plain",
        "parallel, vonet": "ours",
    }
    times = {label: [1e3 * at[form] for at in seconds.values()] for label, form in labels.items()}
    figure.with_suffix(".json").write_text(json.dumps({"slots": list(seconds), "milliseconds": times}, indent=1) + "\n")
    write_attention(figure, list(seconds), times)
    at_11 = seconds[11]
    return {
        "attention_vs_plain_k11": at_11["plain"] / at_11["ours"],
        "attention_vs_recurrent_k11": at_11["recurrent"] / at_11["ours"],
    }


@torch.no_grad()
def encoder() -> dict[str, float]:
    print("\nEncoder step (what streaming costs), 128x128")
    fast, slow = models()
    frame = torch.rand(1, 3, 128, 128)
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    for slots in AUTHORS_STEP:
        state = fast.initial_state(1, slots=slots)
        with FlopCounterMode(display=False) as counter:
            fast.step(frame, state)
        competitors = {
            "ours": lambda s=state: fast.step(frame, s),
            "plain": lambda s=state: slow.step(frame, s),
            "matmul": lambda: a @ b,
        }
        seconds = take_turns(competitors, rounds=25)
        rate, peak = counter.get_total_flops() / 2 / seconds["ours"], 2048**3 / seconds["matmul"]
        ratios = {"encoder_vs_plain": seconds["plain"] / seconds["ours"], "encoder_peak_share": rate / peak}
        print(
            f"K={slots:<3} ours {1e3 * seconds['ours']:.1f} ms, plain {1e3 * seconds['plain']:.1f} ms "
            f"({ratios['encoder_vs_plain']:.2f} x), {rate / 1e9:.0f} of {peak / 1e9:.0f} G multiply-adds/s "
            f"({ratios['encoder_peak_share']:.0%} of the matrix-multiply peak); "
            f"the authors' code elsewhere: {1e3 * AUTHORS_STEP[slots]:.0f} ms"
        )
        if slots == 11:
            result = ratios
    return result


@torch.no_grad()
def generation() -> dict[str, float]:
    print("\nOne 128x128 picture from slots, 1024 tokens")
    decoder = models()[0].decoder
    latents = torch.randn(1, 11, 128)
    cached = take_turns({"cached": lambda: decoder.generate(latents)}, rounds=4, warm_up=1)["cached"]
    uncached = take_turns({"uncached": lambda: plain.generate(decoder, latents, 1024)}, rounds=1, warm_up=0)["uncached"]
    again = take_turns({"cached": lambda: decoder.generate(latents)}, rounds=4, warm_up=0)["cached"]
    cached = (cached + again) / 2  # before and after, for the other takes a minute
    eight = torch.randn(8, 11, 128)
    each = take_turns({"eight": lambda: decoder.generate(eight)}, rounds=2, warm_up=0)["eight"] / 8
    print(
        f"cached {cached:.2f} s, in a batch of eight {each:.2f} s each, uncached {uncached:.1f} s "
        f"({uncached / cached:.0f} x and {uncached / each:.0f} x); "
        f"the authors' code elsewhere: {AUTHORS_PICTURE:.0f} s"
    )
    return {
        "generation_cached_vs_uncached": uncached / cached,
        "generation_batch8_vs_uncached": uncached / each,
    }
