"""Memory limits for reading files from untrusted sources."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vonet.errors import BadInput


@dataclass(frozen=True)
class Limits:
    """The most that a reader may load at once. A file that exceeds a limit is refused with a one-sentence error before
    it is decoded.

    Attributes:
        megapixels: Largest picture or frame, in millions of pixels. Decoding takes about 10 bytes per pixel; 8K video
            has 33 million.
        gigabytes: Largest video that cannot be read in pieces, such as a pickle, or the ids and annotations of a store.
    """

    megapixels: float = 36.0
    gigabytes: float = 2.0

    def __post_init__(self) -> None:
        for name in ("megapixels", "gigabytes"):
            value = getattr(self, name)
            if not (0 < value < math.inf):
                raise BadInput(f"max-{name} is {value}; it must be more than 0 and finite")

    def check_size(self, height: int, width: int, where: str) -> None:
        """Refuse a picture or a frame with too many pixels."""
        if height * width > self.megapixels * 1e6:
            raise BadInput(
                f"{where} has {height}x{width} pixels, more than the limit of {self.megapixels:g} million: reduce it, "
                "or raise --max-megapixels"
            )

    def check_bytes(self, count: int, where: str) -> None:
        """Refuse data that must be in memory at once and takes too many bytes."""
        if count > self.gigabytes * 1e9:
            raise BadInput(
                f"{where} takes {count / 1e9:.1f} GB of memory, more than the limit of {self.gigabytes:g}: split it, "
                "or raise --max-gigabytes"
            )


DEFAULT_LIMITS = Limits()
