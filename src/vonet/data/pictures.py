"""Folders of pictures, one for each frame, and the pictures of ids that belong to them.

True ids are stored beside the frames under telling names (`NAMINGS`). As in DAVIS, they may also be in another folder
of the same name, as grey or palette pictures with the same names as the frames. The pictures, not the names of parent
folders, decide which folder holds ids. All other folders of pictures are videos without ids.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Integer, UInt8

from vonet.data import images
from vonet.data.files import is_video_file
from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.tree import SPLITS, Tree, read_text, split_and_rest
from vonet.data.video import Video, Videos
from vonet.errors import BadInput

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
LOSSLESS = (".png", ".bmp", ".tif", ".tiff")


@dataclass(frozen=True)
class Naming:
    """File names of the frames and id pictures of one dataset format. The group `t` pairs frames with ids, `video`
    names the video if a folder holds several, and `object` numbers the object if each object has its own mask."""

    layout: str
    frame: str
    ids: str
    telling: bool = True  # the frames' names alone are enough to know the project

    def frames(self, names: Sequence[str]) -> list[re.Match[str]]:
        return [match for name in names if (match := re.fullmatch(self.frame, name))]

    def masks(self, names: Sequence[str]) -> list[re.Match[str]]:
        return [match for name in names if (match := re.fullmatch(self.ids, name))]


NAMINGS = (
    Naming("raw Kubric", r"rgba_(?P<t>\d+)\.png", r"segmentation_(?P<t>\d+)\.png"),
    Naming("STEVE", r"(?P<t>\d+)_image\.png", r"(?P<t>\d+)_mask_(?P<object>\d{2,})\.png"),
    Naming("PPMP", r"(?P<video>.+)_rgb_(?P<t>\d+)\.(jpg|png)", r"(?P<video>.+)_ano_(?P<t>\d+)\.png"),
    Naming("frames and masks", r"(?P<t>\d+)\.(jpg|jpeg|png)", r"(?P<t>\d+)_mask\.png", telling=False),
)
PLAIN, PAIRED = "folders of pictures", "folders of pictures and of ids (as DAVIS)"


@dataclass(frozen=True)
class Mask:
    """A picture of ids or, with `object`, the binary mask of that object."""

    path: Path
    object: int | None = None


@dataclass(eq=False)
class Series:
    """Consecutive pictures by their frame key, and the masks of each frame."""

    folder: Path
    frames: Mapping[str, Path]
    layout: str = PLAIN
    masks: Mapping[str, Sequence[Mask]] = field(default_factory=dict)
    video: str = ""

    @property
    def unmasked(self) -> int:
        """Number of frames without ids."""
        return len(self.frames.keys() - self.masks.keys())


class PictureVideo(Video):
    """A video stored as a folder of pictures, with masks where available."""

    def __init__(self, name: str, split: str, series: Series, limits: Limits = DEFAULT_LIMITS):
        super().__init__(name, split)
        self._limits = limits
        self._frames = list(series.frames.values())
        self._masks = [] if series.unmasked else [series.masks[t] for t in series.frames]

    def __len__(self) -> int:
        return len(self._frames)

    @cached_property
    def size(self) -> tuple[int, int]:
        return images.size_of(self._frames[0], str(self._frames[0]), self._limits)

    @property
    def has_ids(self) -> bool:
        return bool(self._masks)

    @property
    def files(self) -> Sequence[Path]:
        return [*self._frames, *(mask.path for masks in self._masks for mask in masks)]

    def frame_name(self, number: int) -> str:
        return self._frames[number].stem

    def frame_file(self, number: int) -> str:
        return self._frames[number].name

    def _read(self, start: int, stop: int) -> UInt8[np.ndarray, "T H W 3"]:
        return np.stack([images.read_rgb(path, str(path), self.size) for path in self._frames[start:stop]])

    def _read_ids(self, start: int, stop: int) -> Integer[np.ndarray, "T H W"]:
        return np.stack([self._frame_ids(masks) for masks in self._masks[start:stop]])

    def _frame_ids(self, masks: Sequence[Mask]) -> Integer[np.ndarray, "H W"]:
        ids = np.zeros(self.size, np.uint8)
        for mask in masks:
            if mask.object is None:
                return images.read_ids(mask.path, str(mask.path), self.size)
            ids[images.read_binary(mask.path, str(mask.path), self.size)] = mask.object
        return ids


def find(tree: Tree) -> Videos | None:
    """Folders of pictures below a path; None if there are none."""
    found = [series for folder, names in tree.folders.items() for series in _series_in(folder, names)]
    found, problems = _paired(tree, found)
    longest = max((len(series.frames) for series in found), default=0)
    found = [series for series in found if len(series.frames) > 1 or longest == 1 or series.layout != PLAIN]
    if not found:
        return None
    problems += _partly_masked(found)
    layouts = dict.fromkeys(series.layout for series in found)
    return Videos(_videos(tree, found), " and ".join(layouts), tree.root, problems)


def _series_in(folder: Path, names: Sequence[str]) -> Iterator[Series]:
    """The series of pictures in a folder. Its names are already sorted."""
    pictures = [name for name in names if name.lower().endswith(PICTURES)]
    for naming in NAMINGS:
        frames, masks = naming.frames(pictures), naming.masks(pictures)
        if frames and (masks or naming.telling):
            yield from _named_series(folder, naming, frames, masks)
            return
    if len(pictures) > sum(map(is_video_file, names)):  # else they are thumbnails of these videos
        yield from _plain_series(folder, pictures)


def _named_series(
    folder: Path, naming: Naming, frames: Sequence[re.Match[str]], masks: Sequence[re.Match[str]]
) -> Iterator[Series]:
    videos: dict[str, dict[str, Path]] = defaultdict(dict)
    for match in frames:
        videos[match.groupdict().get("video", "")][match["t"]] = folder / match.string
    masks_of: dict[str, dict[str, list[Mask]]] = defaultdict(lambda: defaultdict(list))
    for match in masks:
        told = match.groupdict()
        number = int(told["object"]) if "object" in told else None
        masks_of[told.get("video", "")][match["t"]].append(Mask(folder / match.string, number))
    for video, paths in videos.items():
        yield Series(folder, paths, naming.layout, masks_of[video], video if len(videos) > 1 else "")


def _plain_series(folder: Path, pictures: Sequence[str]) -> Iterator[Series]:
    """One series, or one for each file extension if several extensions have a picture of the same frame."""
    by_kind: dict[str, dict[str, Path]] = defaultdict(dict)
    for name in pictures:
        path = folder / name
        by_kind[path.suffix.lower()][path.stem] = path
    together = {path.stem: path for path in (folder / name for name in pictures)}
    for frames in by_kind.values() if len(together) < len(pictures) else [together]:
        yield Series(folder, frames)


def _paired(tree: Tree, found: Sequence[Series]) -> tuple[list[Series], list[str]]:
    """Assigns plain series the ids in folders of the same name, and removes the series that turned out to be ids."""
    same_name: dict[tuple[str | None, str], list[Series]] = defaultdict(list)
    for series in found:
        if series.layout == PLAIN:
            split, _ = split_and_rest(tree.below(series.folder))
            same_name[split, series.folder.name].append(series)
    are_ids: set[Series] = set()
    other_size: list[Series] = []
    for group in same_name.values():
        looks = {series: _look(series) for series in group} if len(group) > 1 else {}
        partners = {series: [other for other in group if _are_ids_of(other, series, looks)] for series in looks}
        are_ids |= {ids for candidates in partners.values() for ids in candidates}
        for series, candidates in partners.items():
            if series in are_ids or not candidates:
                continue
            fitting = [ids for ids in candidates if looks[ids][1] == looks[series][1]]
            if fitting:
                nearest = max(fitting, key=lambda ids: len({*ids.folder.parts} & {*series.folder.parts}))
                series.masks = {t: [Mask(path)] for t, path in nearest.frames.items()}
                series.layout = PAIRED
            else:
                other_size.append(series)
    return [series for series in found if series not in are_ids], _sentence(
        other_size, "ids only of another size than the frames"
    )


def _look(series: Series) -> tuple[int, tuple[int, int] | None]:
    """How likely the first picture is to hold ids (palette: 2, grey: 1, colour: 0), and its size."""
    path = next(iter(series.frames.values()))
    try:
        with images.opened(path, str(path)) as image:
            likeness = 2 if image.mode == "P" else 1 if image.mode in ("L", "1", *images.DEEP) else 0
            return likeness if path.suffix.lower() in LOSSLESS else 0, (image.height, image.width)
    except BadInput:
        return 0, None


def _are_ids_of(ids: Series, frames: Series, looks: Mapping[Series, tuple[int, tuple[int, int] | None]]) -> bool:
    return looks[ids][0] > looks[frames][0] and not ids.frames.keys().isdisjoint(frames.frames)


def _partly_masked(found: Sequence[Series]) -> list[str]:
    partly = [series for series in found if series.masks and series.unmasked]
    return _sentence(partly, "ids for only some of the frames")


def _sentence(concerned: Sequence[Series], what: str) -> list[str]:
    """Reports all affected series in one sentence."""
    if not concerned:
        return []
    first = concerned[0].folder
    if len(concerned) == 1:
        return [f"{first} has {what}: it is used without ids"]
    return [f"{len(concerned)} videos (the first is {first}) have {what}: they are used without ids"]


def _videos(tree: Tree, found: Sequence[Series]) -> list[Video]:
    listed = _listed_splits(tree)
    count = Counter(series.folder.name for series in found)
    paired = any(series.layout == PAIRED for series in found)
    videos: list[Video] = []
    for series in found:
        split, rest = split_and_rest(tree.below(series.folder))
        alone = tree.root.stem if tree.is_file else series.folder.name
        name = "/".join(filter(None, (*rest, series.video))) or alone
        if paired and count[series.folder.name] == 1:
            name = series.folder.name
        videos.append(PictureVideo(name, listed.get(series.folder.name, split or "train"), series, tree.limits))
    return videos


def _listed_splits(tree: Tree) -> dict[str, str]:
    """The split of each sequence according to DAVIS's lists `ImageSets/**/train.txt` and `val.txt`."""
    listed: dict[str, str] = {}
    for path in tree.files():
        if path.suffix == ".txt" and path.stem in SPLITS and "ImageSets" in tree.below(path.parent):
            for line in read_text(path).splitlines():
                told = PurePosixPath((line.split() or [""])[0])
                listed.setdefault(told.parent.name or told.name, SPLITS[path.stem])
    return listed
