"""Records the pixels of inputs that cannot be read twice, until it is known which segments are objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from vonet.data.resize import resized


class Recording:
    """A temporary, nearly lossless video of fixed size beside the results."""

    file = "recording.mkv"

    def __init__(self, folder: Path):
        import av

        self._path = folder / self.file
        self._container = av.open(str(self._path), "w")
        self._stream: Any = None
        self._frames = 0

    def add(self, pixels: UInt8[np.ndarray, "H W 3"], size: tuple[int, int]) -> None:
        """`size`: Size of the recording, even numbers; the same in each call."""
        import av

        if self._stream is None:
            options = {"crf": "12", "preset": "ultrafast"}
            self._stream = self._container.add_stream("libx264", rate=Fraction(25), options=options)
            self._stream.height, self._stream.width = size
            self._stream.pix_fmt = "yuv420p"
        shown = pixels if pixels.shape[:2] == size else resized(pixels[None], size, "stretch")[0]
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(shown), format="rgb24")
        frame.pts, frame.time_base = self._frames, Fraction(1, 25)
        self._frames += 1
        self._container.mux(self._stream.encode(frame))

    def read(self) -> Iterator[UInt8[np.ndarray, "H W 3"]]:
        """All frames; call it after the last was added."""
        import av

        self._container.mux(self._stream.encode())
        self._container.close()
        with closing(av.open(str(self._path))) as container:
            for frame in container.decode(video=0):
                yield frame.to_ndarray(format="rgb24")

    def close(self) -> None:
        self._container.close()
        self._path.unlink(missing_ok=True)
