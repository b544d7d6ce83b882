"""Segmented frames on disk, between the pass that finds segments and the pass that writes those that are objects."""

from __future__ import annotations

import json
import struct
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Integer, UInt8

from vonet.serving.segmenter import SegmentedFrame
from vonet.serving.tracks import Track, without


@dataclass(frozen=True)
class FoundFrame:
    """A frame and its objects, as writers get them."""

    number: int  # as in the video, from 0
    seconds: float  # after the video's first frame
    ids: Integer[np.ndarray, "H W"]  # 0 where there is no object
    tracks: Sequence[Track]
    name: str  # of a picture of this frame, without suffix
    file: str  # the picture that it is, or the video and the frame's number
    pixels: Callable[[], UInt8[np.ndarray, "H W 3"]]  # decoded on access


class Spool:
    """Stores frames in a temporary file beside the results, because the system's temporary folder may be in memory."""

    def __init__(self, folder: Path):
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed in `close`
        self.frames = 0

    def add(self, frame: SegmentedFrame) -> None:
        height, width = frame.ids.shape
        about = {"number": frame.number, "seconds": frame.seconds or 0.0, "kind": frame.ids.dtype.str}
        about |= {"size": (height, width), "tracks": [asdict(track) for track in frame.tracks]}
        for part in (json.dumps(about).encode(), zlib.compress(frame.ids.tobytes(), 1)):
            self._file.write(struct.pack("<Q", len(part)))
            self._file.write(part)
        self.frames += 1

    def read(self, left_out: Collection[int]) -> Iterator[tuple[int, float, Integer[np.ndarray, "H W"], list[Track]]]:
        """Number, seconds, ids and tracks of each frame, without the segments that are left out."""
        self._file.seek(0)
        for _ in range(self.frames):
            about = json.loads(self._part())
            ids = np.frombuffer(zlib.decompress(self._part()), about["kind"]).reshape(about["size"])
            tracks = [Track(**{**told, "box": tuple(told["box"])}) for told in about["tracks"]]
            kept = [track for track in tracks if track.id not in left_out]
            yield about["number"], about["seconds"], without(ids, left_out), kept

    def _part(self) -> bytes:
        (length,) = struct.unpack("<Q", self._file.read(8))
        return self._file.read(length)

    def close(self) -> None:
        self._file.close()
