"""The animation of the README: `python -m tools.animation` writes docs/learned.gif.

The first six close-ups of a seed that no training or tuning used, none left out: frames above, masks of the shipped
`vonet-closeup` below. Segments have the colour of the true object that they match; what lies on background is grey.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

import vonet
from vonet.data.scenes.video import WorldConfig, generate_video
from vonet.figures.matching import matched, paints

OUT = Path(__file__).resolve().parents[1] / "docs/learned.gif"
WEIGHTS, SEED, VIDEOS, SIZE, GAP = "vonet-closeup", 303, 6, 128, 4
MILLISECONDS, LAST_MILLISECONDS, COLOURS = 110, 900, 96


def columns() -> list[np.ndarray]:
    """For each video the frames above the masks, `T H W 3`."""
    world = WorldConfig(level="A", size=SIZE, objects=(2, 4), seed=SEED, camera_distance=0.6)
    model, _ = vonet.load(WEIGHTS)
    found = []
    for index in range(VIDEOS):
        video = generate_video(world, "validation", index)
        segmenter = vonet.Segmenter(model, video=str(index))
        ids = np.stack([segmenter(frame).ids for frame in video.frames])
        numbers = matched(ids, video.ids).numbered(ids)
        masks = paints(int(numbers.max()))[numbers]
        found.append(np.concatenate([video.frames, np.full_like(masks[:, :GAP], 255), masks], axis=1))
    return found


def main() -> None:
    parts = columns()
    gap = np.full_like(parts[0][:, :, :GAP], 255)
    joined = np.concatenate([part for column in parts for part in (column, gap)][:-1], axis=2)
    pictures = [Image.fromarray(frame) for frame in joined]
    palette = Image.fromarray(np.concatenate(joined[::6])).quantize(COLOURS, dither=Image.Dither.NONE)
    drawn = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    times = [MILLISECONDS] * (len(drawn) - 1) + [LAST_MILLISECONDS]
    drawn[0].save(OUT, save_all=True, append_images=drawn[1:], duration=times, loop=0, optimize=True)
    print(f"{OUT}: {OUT.stat().st_size:,} bytes, {len(drawn)} frames")


if __name__ == "__main__":
    main()
