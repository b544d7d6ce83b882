"""How fast worlds are made, the store is read, and MOVi's shards are decoded."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np

import vonet.data
from vonet.data.generate import generate
from vonet.data.scenes.video import WorldConfig
from vonet.data.spmot import SpritesMotConfig
from vonet.data.work import cores

WORLDS = ((WorldConfig("A"), 120), (WorldConfig("E"), 60), (SpritesMotConfig(), 2000))
SEGMENT = 3


def data() -> dict[str, float]:
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        for world, videos in WORLDS:
            begin = time.perf_counter()
            generate(world, {"train": videos}, Path(folder) / world.name, cores())
            ratios[f"world_{world.name.lower()}_per_minute"] = 60 * videos / (time.perf_counter() - begin)
        generate(WorldConfig("A", size=128), {"train": 24}, Path(folder) / "A128", cores())
        for name in ("A", "A128"):
            _store(Path(folder) / name)
    ratios |= _shards()
    return ratios


def _store(path: Path) -> None:
    videos = vonet.data.open(path)
    rng = np.random.default_rng(0)
    picks = [(int(rng.integers(len(videos))), int(rng.integers(24 - SEGMENT))) for _ in range(2000)]
    begin = time.perf_counter()
    for number, start in picks:
        videos[number].read(start, start + SEGMENT)
    segments = len(picks) / (time.perf_counter() - begin)
    begin = time.perf_counter()
    for video in videos:
        _ = video.frames, video.ids
    whole = len(videos) / (time.perf_counter() - begin)
    size = sum(file.stat().st_size for file in path.rglob("*.npz")) / len(videos)
    print(
        f"store, {videos[0].size[0]} pixels: {size / 1e3:.0f} kB per video; {segments:.0f} segments of {SEGMENT} "
        f"frames per second, or {whole:.0f} whole videos with ids (one process, files in memory)"
    )


def _shards() -> dict[str, float]:
    """On the original MOVi-A, where there is some: the environment variable VONET_MOVI_A says where."""
    path = Path(os.environ.get("VONET_MOVI_A", Path(__file__).parents[2] / "shared/data/movi_a"))
    if not path.exists():
        print("no MOVi-A here (VONET_MOVI_A): its shards are not measured")
        return {}
    rates = []
    for _ in range(3):
        begin = time.process_time()
        videos = vonet.data.open(path)
        for video in videos:
            _ = video.frames, video.ids
        rates.append(len(videos) / (time.process_time() - begin))
    print(f"MOVi-A shards: {max(rates):.0f} videos per CPU second, frames and ids decoded, checksums checked")
    return {"shards_per_cpu_second": max(rates)}
