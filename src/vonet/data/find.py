"""Find the videos below a path, in any layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.store import INDEX, is_store, open_store
from vonet.data.tree import SPLITS, Tree, list_tree
from vonet.data.video import Video, Videos
from vonet.errors import BadInput

POSSIBLE = (
    "a vonet store, MOVi's shards (*.tfrecord-*), webdataset tars, VONet's pickles (video_*.pkl), "
    "folders of pictures, or video files"
)
_OWN: dict[str, Callable[[Path], Sequence[Video]]] = {}


def add_layout(name: str, find: Callable[[Path], Sequence[Video]]) -> None:
    """Register your own layout for `open` and all commands.

    Args:
        name: As `vonet inspect` prints it. Adding a name again replaces it.
        find: Takes the given path (a folder or a file) and returns its videos; an empty list if the path has another
            layout. vonet tries it before its own layouts.
    """
    _OWN[name] = find


def open(path: str | Path, split: str | None = None, limits: Limits = DEFAULT_LIMITS) -> Videos:
    """The videos in a folder or file, whatever their layout.

    Args:
        path: A store, MOVi's shards, a folder of frames or videos, or a single file; see docs/data.md.
        split: Use only the videos of this split (None: all).
        limits: Memory limits for reading.

    Returns:
        A sequence of videos, which are read on access. Its `problems` holds one sentence for each file that cannot be
        read.

    Raises:
        BadInput: If there is nothing to read, or the split does not exist.
    """
    if not str(path) or not os.path.exists(path):
        raise BadInput(f"there is nothing at {str(path)!r}; give the path of {POSSIBLE}")
    root = Path(path).absolute()
    videos = open_store(root, limits) if is_store(root) else _find_own(root) or _find(list_tree(root, limits))
    return videos.in_split(SPLITS.get(split, split) if split else None)


def _find_own(root: Path) -> Videos | None:
    found = ((name, find(root)) for name, find in _OWN.items())
    return next((Videos(videos, name, root) for name, videos in found if videos), None)


def _find(tree: Tree) -> Videos:
    """Try each layout, the strictest first; layouts that accept any folder of pictures or any file come last."""
    from vonet.data import files, pickles, pictures, tars, tfds

    stores = [str(folder) for folder, names in tree.folders.items() if INDEX in names and is_store(folder)]
    if stores:
        raise BadInput(f"{tree.root} holds stores: point at one of them ({', '.join(stores[:5])})")
    problems = list(tree.problems)
    for layout in (tfds, tars, pickles, pictures, files):
        videos = layout.find(tree)
        problems += videos.problems if videos is not None else []
        if videos:
            left_out = [file for file in tree.files() if layout is pictures and files.is_video_file(file.name)]
            if left_out:
                problems.append(
                    f"{len(left_out)} video files (the first is {left_out[0]}) lie among folders of pictures and were "
                    "left out: point at them alone to read them"
                )
            videos.problems = problems
            return videos
    if tree.is_file and len(problems) == 1:
        raise BadInput(problems[0])
    if problems:
        more = f" (and {len(problems) - 3} more problems)" if len(problems) > 3 else ""
        raise BadInput(f"no usable video in {tree.root}: {'; '.join(problems[:3])}{more}")
    some = next(tree.files(), None)
    if some is None:
        raise BadInput(f"{tree.root} has no files; give the path of {POSSIBLE}")
    raise BadInput(f"no videos among the files in {tree.root} (such as {some.name}); give the path of {POSSIBLE}")
