"""Writers of segmented frames, one class for each file format. Frames arrive one by one and none is kept; formats that
need another order use a temporary file."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import tempfile
import zipfile
from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image

from vonet.data.resize import resized, resized_ids
from vonet.errors import BadInput
from vonet.figures.overlays import overlaid
from vonet.serving import rle
from vonet.serving.sound import Sound
from vonet.serving.spool import FoundFrame
from vonet.serving.tracks import Row, write_table


@dataclass(frozen=True)
class Source:
    """Properties of the video that a writer gets before the first frame.

    Attributes:
        name: Name of the video.
        rate: Frames per second.
        slots: Number of slots.
        folder: Folder of the pictures or the video of `FoundFrame.file`.
        sound: The file with the sound, if it can be kept.
    """

    name: str
    rate: float
    slots: int
    folder: Path | None = None
    sound: Path | None = None


class Writer(ABC):
    """A writer is called with every frame. `finish` completes the file, `abandon` discards it.

    Attributes:
        file: Name of the file.
        problem: A sentence if a part of the video is missing in the file.
    """

    file: str
    problem: str | None = None

    @abstractmethod
    def __init__(self, folder: Path, source: Source): ...

    @abstractmethod
    def add(self, frame: FoundFrame) -> None:
        """The next frame."""

    @abstractmethod
    def finish(self, rows: Sequence[Row]) -> None:
        """Complete the file; `rows` are the tracks of all objects."""

    def abandon(self) -> None:  # noqa: B027
        """Discard the file; most writers hold no resources."""


class Overlay(Writer):
    """A video for people: it keeps the times of the frames and the sound, and has a size that players can show."""

    file = "overlay.mp4"
    largest, smallest = 1920, 256
    ticks = 90_000

    def __init__(self, folder: Path, source: Source):
        import av

        self._container = av.open(str(folder / self.file), "w")
        self._rate = max(Fraction(source.rate).limit_denominator(1001), Fraction(1, 1001))
        self._stream: Any = None
        self._path_of_sound = source.sound
        self._sound: Sound | None = None
        self._begin, self._last = 0.0, -1

    def add(self, frame: FoundFrame) -> None:
        import av

        picture = overlaid(*self._at_size(frame.pixels(), frame.ids))
        if self._stream is None:
            how = {"crf": "20", "preset": "veryfast"}
            self._stream = self._container.add_stream("libx264", rate=self._rate, options=how)
            self._stream.height, self._stream.width = picture.shape[:2]
            self._stream.pix_fmt = "yuv420p"
            self._stream.codec_context.time_base = Fraction(1, self.ticks)
            self._begin = frame.seconds
            if self._path_of_sound is not None:
                self._sound = Sound(self._path_of_sound, self._begin, self._container)
        shown = av.VideoFrame.from_ndarray(picture, format="rgb24")
        seconds = frame.seconds - self._begin
        self._last = max(self._last + 1, round(seconds * self.ticks))  # times in files may stand still or go back
        shown.pts, shown.time_base = self._last, Fraction(1, self.ticks)
        self._container.mux(self._stream.encode(shown))
        self._mux_sound(seconds)

    def _mux_sound(self, until: float) -> None:
        """Interleaves the sound with the pictures, as players expect."""
        if self._sound is not None:
            for packet in self._sound.packets(until):
                self._container.mux(packet)

    def finish(self, rows: Sequence[Row]) -> None:
        self._container.mux(self._stream.encode())
        if self._sound is not None:
            self._mux_sound(self._last / self.ticks + float(1 / self._rate))
            for packet in self._sound.rest():
                self._container.mux(packet)
            self.problem = self._sound.problem
        self.abandon()

    def abandon(self) -> None:
        if self._sound is not None:
            self._sound.close()
        self._container.close()

    def _at_size(self, pixels: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        begun = self._stream is not None
        size = (self._stream.height, self._stream.width) if begun else self.size_of(ids.shape)
        if pixels.shape[:2] != size:
            pixels = resized(pixels[None], size, "stretch")[0]
        return pixels, ids if ids.shape == size else resized_ids(ids[None], size, "stretch")[0]

    @classmethod
    def size_of(cls, frame: tuple[int, ...]) -> tuple[int, int]:
        """The size of the video: limited for players, enlarged if small, and even as the codec requires."""
        h, w = frame
        scale = min(cls.largest / max(h, w), float(max(1, cls.smallest // max(h, w))))
        return _even(h * scale), _even(w * scale)


def _even(side: float) -> int:
    return max(2, 2 * round(side / 2))


LARGEST_ID = 255
"""Largest id of a picture with a palette."""


class Davis(Writer):
    """A picture of ids for each frame, with the palette of DAVIS."""

    file = "masks"

    def __init__(self, folder: Path, source: Source):
        if source.slots > LARGEST_ID:
            raise BadInput(f"pictures of masks hold at most {LARGEST_ID} ids; {source.slots} slots were asked for")
        self._folder = folder / self.file
        self._folder.mkdir()
        self._palette = davis_palette()

    def add(self, frame: FoundFrame) -> None:
        if (largest := int(frame.ids.max())) > LARGEST_ID:  # a model with labels of its own may give ever new ones
            raise BadInput(f"pictures of masks hold at most {LARGEST_ID} ids; id {largest} was found: leave out masks")
        picture = Image.fromarray(frame.ids.astype(np.uint8))
        picture.putpalette(self._palette)
        picture.save(self._folder / f"{frame.name}.png")

    def finish(self, rows: Sequence[Row]) -> None:
        pass


def davis_palette() -> list[int]:
    """The PASCAL VOC palette: the bits of a number, from the lowest on, are distributed over the high bits of red,
    green and blue."""
    numbers = np.arange(256)[:, None]
    channels = np.arange(3)
    palette = np.zeros((256, 3), np.int64)
    for place in range(8):
        palette |= (numbers >> (3 * place + channels) & 1) << (7 - place)
    return palette.ravel().tolist()


CATEGORIES = [{"id": 1, "name": "object"}]


class Coco(Writer):
    """Every object of every frame with its mask, box and track."""

    file = "coco.json"

    def __init__(self, folder: Path, source: Source):
        self._name, self._count = source.name, 0
        self._out = (folder / self.file).open("w", encoding="utf-8")
        self._images = _spool(folder)
        info = {"video": source.name, "folder": None if source.folder is None else str(source.folder)}
        self._out.write(f'{{"info": {json.dumps(info)},\n"categories": {json.dumps(CATEGORIES)},\n')
        self._out.write('"annotations": [')

    def add(self, frame: FoundFrame) -> None:
        masks = rle.encoded(frame.ids)
        h, w = frame.ids.shape
        image = {"id": frame.number, "file_name": frame.file, "height": h, "width": w, "seconds": frame.seconds}
        self._images.write(json.dumps(image) + "\n")
        for track in frame.tracks:
            self._count += 1
            annotation = {
                **{"id": self._count, "image_id": frame.number, "category_id": 1, "track_id": track.id},
                **{"bbox": track.box, "area": track.area, "score": round(track.confidence, 4), "iscrowd": 0},
                "segmentation": masks[track.id],
            }
            self._out.write(f"{',' if self._count > 1 else ''}\n{json.dumps(annotation)}")

    def finish(self, rows: Sequence[Row]) -> None:
        self._out.write('\n],\n"images": ')
        _write_list(self._out, _lines(self._images))
        self._out.write("}\n")
        self.abandon()

    def abandon(self) -> None:
        self._out.close()
        self._images.close()


class YouTubeVis(Writer):
    """Every object with its masks in all frames, `null` where it is not visible."""

    file = "ytvis.json"
    parts = ("segmentations", "bboxes", "areas")
    unseen = "[null, null, null]"

    def __init__(self, folder: Path, source: Source):
        self._name, self._home, self._path = source.name, source.folder, folder / self.file
        self._open = ExitStack()
        self._names = self._open.enter_context(_spool(folder))
        self._folder = folder
        self._objects: dict[int, IO[str]] = {}
        self._length, self._size = 0, (0, 0)
        self._confidences: dict[int, float] = defaultdict(float)
        self._seen: dict[int, int] = defaultdict(int)

    def add(self, frame: FoundFrame) -> None:
        masks = rle.encoded(frame.ids)
        self._names.write(json.dumps(frame.file) + "\n")
        lines = {}
        for track in frame.tracks:
            lines[track.id] = json.dumps([masks[track.id], track.box, track.area])
            self._confidences[track.id] += track.confidence
            self._seen[track.id] += 1
            if track.id not in self._objects:
                self._objects[track.id] = self._open.enter_context(_spool(self._folder))
                self._objects[track.id].write(f"{self.unseen}\n" * self._length)
        for one, spool in self._objects.items():
            spool.write(lines.get(one, self.unseen) + "\n")
        self._length, self._size = self._length + 1, frame.ids.shape

    def finish(self, rows: Sequence[Row]) -> None:
        h, w = self._size
        shape = {"height": h, "width": w, "length": self._length}
        info = {"folder": None if self._home is None else str(self._home)}
        with self._path.open("w", encoding="utf-8") as out:
            out.write(f'{{"info": {json.dumps(info)},\n"categories": {json.dumps(CATEGORIES)},\n')
            out.write(f'"videos": [{json.dumps({"id": 1, "name": self._name, **shape})[:-1]}, "file_names": ')
            _write_list(out, _lines(self._names))
            out.write('}],\n"annotations": [')
            for place, one in enumerate(sorted(self._objects)):
                score = round(self._confidences[one] / self._seen[one], 4)
                about = {"id": one, "video_id": 1, "category_id": 1, "iscrowd": 0, "score": score, **shape}
                out.write(f"{',' if place else ''}\n{json.dumps(about)[:-1]}")
                for part, name in enumerate(self.parts):
                    out.write(f', "{name}": ')
                    _write_list(out, (json.dumps(json.loads(line)[part]) for line in _lines(self._objects[one])))
                out.write("}")
            out.write("\n]}\n")
        self.abandon()

    def abandon(self) -> None:
        self._open.close()


class Mot(Writer):
    """MOTChallenge format: frame, id, left, top, width, height, confidence, and three unknown numbers. Frames and
    pixels are counted from 1."""

    file = "mot.csv"

    def __init__(self, folder: Path, source: Source):
        self._out = (folder / self.file).open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._out, lineterminator="\n")

    def add(self, frame: FoundFrame) -> None:
        for track in frame.tracks:
            left, top, width, height = track.box
            box = (left + 1, top + 1, width, height)
            self._writer.writerow([frame.number + 1, track.id, *box, f"{track.confidence:.4f}", -1, -1, -1])

    def finish(self, rows: Sequence[Row]) -> None:
        self.abandon()

    def abandon(self) -> None:
        self._out.close()


class Npz(Writer):
    """For numpy: `ids` T H W, and the `numbers` and `seconds` of the frames."""

    file = "ids.npz"

    def __init__(self, folder: Path, source: Source):
        self._path = folder / self.file
        self._raw = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed in `abandon`
        self._packed = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=1)
        self._numbers, self._seconds = array("q"), array("d")
        self._size: tuple[int, ...] = ()
        self._kind = np.dtype(np.uint8)

    def add(self, frame: FoundFrame) -> None:
        self._size, self._kind = frame.ids.shape, frame.ids.dtype
        self._packed.write(np.ascontiguousarray(frame.ids).tobytes())
        self._numbers.append(frame.number)
        self._seconds.append(frame.seconds)

    def finish(self, rows: Sequence[Row]) -> None:
        self._packed.close()
        self._raw.seek(0)
        with zipfile.ZipFile(self._path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            with archive.open("ids.npy", "w", force_zip64=True) as member:
                shape = (len(self._numbers), *self._size)
                header = {"descr": self._kind.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                with gzip.GzipFile(fileobj=self._raw) as unpacked:
                    shutil.copyfileobj(unpacked, member, 1 << 20)
            for name, values in (("numbers", self._numbers), ("seconds", self._seconds)):
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.array(values))
        self.abandon()

    def abandon(self) -> None:
        self._packed.close()
        self._raw.close()


class TrackTable(Writer):
    """One line per object."""

    file = "tracks.csv"

    def __init__(self, folder: Path, source: Source):
        self._path = folder / self.file

    def add(self, frame: FoundFrame) -> None:
        pass

    def finish(self, rows: Sequence[Row]) -> None:
        write_table(self._path, rows)


WRITERS: dict[str, type[Writer]] = {
    "overlay": Overlay,
    "tracks": TrackTable,
    "masks": Davis,
    "coco": Coco,
    "ytvis": YouTubeVis,
    "mot": Mot,
    "npz": Npz,
}
DEFAULT = ("overlay", "tracks")


def chosen(names: Sequence[str]) -> dict[str, type[Writer]]:
    """The writers with these names; "all" selects every one."""
    unknown = [name for name in names if name not in WRITERS and name != "all"]
    if unknown:
        raise BadInput(f"there is no output {unknown[0]!r}; there are {', '.join(WRITERS)} and all")
    return {name: kind for name, kind in WRITERS.items() if name in names or "all" in names}


def _spool(folder: Path) -> IO[str]:
    """A temporary folder beside the results, because the system's temporary folder may be in memory."""
    return tempfile.TemporaryFile("w+", encoding="utf-8", dir=folder)  # who asks for it closes it


def _lines(spool: IO[str]) -> Iterable[str]:
    spool.seek(0)
    return (line.rstrip("\n") for line in spool)


def _write_list(out: IO[str], items: Iterable[str]) -> None:
    out.write("[")
    for place, item in enumerate(items):
        out.write(f"{',' if place else ''}{item}")
    out.write("]")
