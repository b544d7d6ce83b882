"""Weights made on the spot, videos of every kind, and plain readers of what is written."""

import struct
from dataclasses import replace
from fractions import Fraction

import numpy as np
import torch

from tests.reduced import reduced_experiment
from vonet import experiments
from vonet.experiments import weights


def save_weights(folder, **model):
    """Of a model that has learned nothing, with larger weights, so that its masks are not all alike."""
    experiment = reduced_experiment(experiments.get("vonet-sprites"))
    experiment = replace(experiment, model=replace(experiment.model, **model))
    made = experiment.build_model(seed=0)
    with torch.no_grad():
        for parameter in made.attention.parameters():
            parameter.mul_(2.5)
    weights.save(folder, made, experiment)
    return folder


def pictures(frames=6, height=48, width=64):
    """A bright corner at the upper left and a square that moves right, over noise."""
    made = np.random.default_rng(0).integers(0, 60, (frames, height, width, 3), dtype=np.uint8)
    for t, frame in enumerate(made):
        frame[: height // 2, : width // 2] = (220, 40, 40)
        left = (8 * t) % (width - 8)
        frame[-16:-4, left : left + 8] = (30, 200, 240)
    return made


def write_video(path, frames=None, codec="libx264", pixels="yuv420p", times=None, rate=10, **stream_options):
    """`times`: in tenths of a second, if the rate is not steady."""
    import av

    frames = pictures() if frames is None else frames
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, **stream_options)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = pixels
        for t, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24" if frame.shape[-1] == 3 else "rgba")
            if times is not None:
                picture.pts, picture.time_base = times[t], Fraction(1, 10)
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return path


def turn_by_flag(path):
    """As a phone that is held upright does: the pixels lie on their side, and the file says so. The upper left corner
    of the pixels is the upper right one of the picture (ISO 14496-12, the matrix of `tkhd`)."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40
    data[at : at + 36] = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    return path


def plain_mask(segmentation):
    """What COCO's compressed run lengths say, letter by letter."""
    counts, at = [], 0
    letters = segmentation["counts"]
    while at < len(letters):
        number, shift, more = 0, 0, True
        while more:
            bits = ord(letters[at]) - 48
            number |= (bits & 31) << shift
            more = bool(bits & 32)
            shift += 5
            at += 1
            if not more and bits & 16:
                number |= -1 << shift
        counts.append(number + counts[-2] if len(counts) > 2 else number)
    flat = [place % 2 for place, count in enumerate(counts) for _ in range(count)]
    height, width = segmentation["size"]
    flat += [0] * (height * width - len(flat))
    return np.array(flat, bool).reshape(width, height).T


def table(background="plain", frames=20, height=96, width=128, seed=8):
    """Three discs with shading and a highlight that move on a table; frames, and the ids of the discs.

    background: plain, or split into a wall and a table of other colours. The seed is one where `mixture` has the wall
    in one segment; with most others it breaks it into pieces, which no rule repairs (docs/segment.md has the numbers).
    """
    rng = np.random.default_rng(seed)
    down, across = np.mgrid[:height, :width] + 0.5
    colours = np.array([[200, 40, 40], [40, 160, 60], [50, 70, 200]])
    radii = rng.uniform(0.1, 0.14, 3) * height
    starts = np.stack([rng.uniform(0.3, 0.7, 3) * height, (np.arange(3) + 0.5) / 3 * width], axis=1)
    steps = rng.uniform(-0.01, 0.01, (3, 2)) * height
    made, ids = np.empty((frames, height, width, 3), np.uint8), np.zeros((frames, height, width), np.uint8)
    for t in range(frames):
        picture = np.full((height, width, 3), (170.0, 125, 85))
        if background == "split":
            picture[: 45 * height // 100] = (70, 130, 150)
        for one, (colour, radius) in enumerate(zip(colours, radii, strict=True)):
            y, x = starts[one] + t * steps[one]
            far = np.hypot(down - y, across - x)
            shaded = np.clip(colour * (1 - 0.2 * (down - y) / radius)[..., None], 0, 255)
            bright = np.hypot(down - y + 0.4 * radius, across - x + 0.4 * radius)
            for edge, paint in ((radius - far, shaded), (0.22 * radius - bright, np.full(3, 250.0))):
                share = np.clip(edge + 0.5, 0, 1)[..., None]
                picture = (1 - share) * picture + share * paint
            ids[t][far < radius] = one + 1
        made[t] = np.clip(picture + rng.normal(0, 6, picture.shape), 0, 255)
    return made, ids


def write_sounding_video(path, frames=None, seconds=2.0, rate=10, pitch=440.0):
    """A video with a tone, which is silent in its second half."""
    import av

    frames = pictures(round(seconds * rate)) if frames is None else frames
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        shown = container.add_stream("libx264", rate=rate)
        shown.height, shown.width = frames[0].shape[:2]
        shown.pix_fmt = "yuv420p"
        heard = container.add_stream("aac", rate=44100)
        heard.layout = "mono"
        times = np.arange(round(seconds * 44100)) / 44100
        tone = (0.5 * np.sin(2 * np.pi * pitch * times) * (times < seconds / 2)).astype(np.float32)
        for frame in frames:
            container.mux(shown.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(shown.encode())
        for begin in range(0, len(tone), 1024):
            samples = av.AudioFrame.from_ndarray(tone[None, begin : begin + 1024], format="fltp", layout="mono")
            samples.sample_rate, samples.pts, samples.time_base = 44100, begin, Fraction(1, 44100)
            container.mux(heard.encode(samples))
        container.mux(heard.encode())
    return path
