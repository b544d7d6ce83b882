"""Reading, generating and storing videos. Importing this package imports neither torch nor a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vonet.data.find import add_layout, open
from vonet.data.video import ArrayVideo, Video, Videos

if TYPE_CHECKING:
    from vonet.data.clips import Clips

__all__ = ["ArrayVideo", "Video", "Videos", "add_layout", "open", "segments"]


def segments(
    path: str | Path, length: int = 3, *, split: str | None = "train", step: int = 1, ids: bool = False
) -> Clips:
    """The videos at `path` as a torch dataset of clips, for `torch.utils.data.DataLoader`.

    Args:
        path: A store, or whatever `open` reads with frames of one size.
        length: Frames of a clip, T.
        split: Use only the videos of this split (None: all).
        step: A clip begins at every `step`-th frame; `step=length` gives clips that do not overlap.
        ids: Whether items are pairs of frames and true ids, or the frames alone.

    Returns:
        A dataset whose items are frames `T 3 H W`, floats in [0, 1], and with `ids` also the true ids `T H W`.

    Raises:
        BadInput: If no video has a clip of that length, frame sizes differ, or true ids are missing.
    """
    from vonet.data.clips import Clips

    return Clips(open(path, split), length, step, ids)
