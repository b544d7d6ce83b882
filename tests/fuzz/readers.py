"""Every reader of the package: valid files for it, how these are mutated, and what it does with them."""

import io
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from PIL import Image

import vonet.data
from tests.data import layouts
from tests.fuzz import mutations
from vonet.data import images, npy
from vonet.data.store import Store, damaged, describe, open_store, write_video
from vonet.errors import BadInput


@dataclass
class Reader:
    """files: what lies in the reader's folder, by path. mutate: for the files that are changed, one at a time.
    texts: for a reader of texts, such as options, instead of files. share: of a hundred inputs.

    `write` puts one changed file into the folder and `restore` puts the valid one back."""

    name: str
    share: int
    read: Callable[[Path], object]
    files: dict[str, bytes] = field(default_factory=dict)
    mutate: dict[str, Callable] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        for path, content in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    def run(self, folder: Path, changed: Path | None = None) -> None:
        """Reads the folder in which `changed` was changed."""
        self.read(folder)

    def write(self, rng, folder: Path) -> Path:
        path = rng.choice(list(self.mutate))
        (folder / path).write_bytes(self.mutate[path](rng, self.files[path]))
        return folder / path

    def restore(self, changed: Path, folder: Path) -> None:
        changed.write_bytes(self.files[changed.relative_to(folder).as_posix()])


def files_below(folder: Path) -> dict[str, bytes]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def read_videos(folder: Path) -> None:
    """All frames and ids of all videos; a video that cannot be read does not keep the others from being read."""
    sentences = []
    for video in vonet.data.open(folder):
        try:
            assert len(video) > 0
            assert min(video.size) > 0
            for frames, ids in video.pieces():
                assert frames.shape[1:] == (*video.size, 3)
                assert ids is None or ids.shape == frames.shape[:3]
            dict(video.annotations)
        except BadInput as sentence:
            sentences.append(sentence)
    if sentences:
        raise sentences[0]


# Stores


def a_store(folder: Path) -> dict[str, bytes]:
    made_by = {"command": "generate", "seed": 0}
    with Store(folder, made_by) as store:
        for number in range(2):
            frames, ids = layouts.clip(number)
            about = {
                "name": f"v{number}",
                "split": "train",
                "made_by": made_by,
                "source": "",
                "objects": [{"mass": 1.5}],
            }
            write_video(store.path("train", number), [(frames, ids)], about, {"sprites": np.zeros((3, 2), np.int16)})
        store.finish([store.entry("train", number) for number in range(2)])
    return files_below(folder)


def read_store(folder: Path) -> None:
    read_videos(folder)
    damaged(folder, open_store(folder))


def read_shards(folder: Path) -> None:
    """With an index that has the size of the changed file, or the file would not be read."""
    index = json.loads((folder / "index.json").read_text())
    for entry in index["videos"]:
        path = folder / entry["file"]
        describe(path)
        entry["bytes"] = path.stat().st_size
    (folder / "index.json").write_text(json.dumps(index))
    read_videos(folder)


def read_marker(folder: Path) -> None:
    """As `vonet prepare` does to a folder in which it was interrupted."""
    with Store(folder, {"command": "generate", "seed": 0}) as store:
        store.refuse_to_shrink([("train", 0), ("train", 1)])
        store.entry("train", 0)


class Rewritten(Reader):
    """Reading changes other files than the one that was changed."""

    def restore(self, changed: Path, folder: Path) -> None:
        self.prepare(folder)


# Runs


def small_experiment():
    from tests.reduced import reduced_experiment
    from vonet import experiments
    from vonet.training.replay import ReplayConfig

    made = reduced_experiment(experiments.get("vonet-sprites"))
    replay = ReplayConfig(videos=2, length=12, frames_per_update=1, frames_before_first_update=8)
    return replace(made, training=replace(made.training, batch=2, segment=2, replay=replay))


class Trained:
    """A training of two updates, and what it writes."""

    @cached_property
    def training(self):
        from vonet.data.video import ArrayVideo
        from vonet.training.loop import Training
        from vonet.training.segments import Footage

        experiment = small_experiment()
        pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 32, 32, 3), dtype=np.uint8)
        footage = Footage([ArrayVideo(str(number), video) for number, video in enumerate(pixels)], (32, 32))
        training = Training(experiment.build_model(seed=0), experiment.training, footage, 0)
        for _ in range(2):
            training.step()
        return training

    @cached_property
    def about(self) -> dict:
        from vonet.experiments.descriptions import described

        kept = {"seed": 0, "accumulate": 1, "data": "3 videos", "precision": "float32", "job": "", "path": "data"}
        return {"experiment": described(small_experiment()), **kept}

    def checkpoint(self, folder: Path) -> dict[str, bytes]:
        from vonet.training import checkpoint
        from vonet.training.distributed import Processes

        tensors, facts = self.training.remember()
        checkpoint.save(folder, (tensors, {**facts, "seconds": 1.0}), self.about, Processes())
        return files_below(folder)

    def read(self, folder: Path) -> None:
        """As `vonet train --resume` does."""
        from vonet.training import checkpoint, run
        from vonet.training.distributed import Processes

        run.updates_done(folder)
        run._restarted(folder, Processes())
        run._check_same(checkpoint.latest(folder), {k: v for k, v in self.about.items() if k != "job"}, folder)
        checkpoint.recall(self.training, checkpoint.load(folder, Processes()), folder)


def some_weights(folder: Path) -> dict[str, bytes]:
    from vonet.experiments import weights

    experiment = small_experiment()
    weights.save(folder, experiment.build_model(seed=0), experiment)
    return files_below(folder)


def read_weights(folder: Path) -> None:
    from vonet.experiments import weights

    weights.load(folder)


def a_log() -> bytes:
    scores = {"fg_ari": 0.5, "miou": 0.25, "slots_per_object": 1.5}
    losses = {"reconstruction": 3.0, "kl": 2.0}
    lines = [
        {"update": u, "seconds": u / 2, "losses": losses, "norms": {"encoder": 0.1}, "entropy": 0.5} for u in (1, 2)
    ]
    lines += [{"update": 2, "seconds": 1.0, "scores": scores, "alarm": None}]
    return "\n".join(map(json.dumps, lines)).encode() + b"\n"


def read_log(folder: Path) -> None:
    """As `--resume` and `vonet report` do. Drawing takes long, so few are drawn."""
    from vonet.figures.curves import write_curves
    from vonet.figures.page import _curves
    from vonet.training.log import Log, read

    path = folder / "log.jsonl"
    drawn = zlib.crc32(path.read_bytes()) % 100 == 0
    entries = read(path)
    json.dumps(_curves(entries), allow_nan=False)
    if entries:
        f"{entries[-1]['update']} updates in {entries[-1]['seconds'] / 60:.0f} minutes"
    if drawn:
        write_curves(folder / "curves.png", entries, {})
    Log(path, 2)


def an_evaluation() -> bytes:
    from vonet.evaluation.protocol import SCORES
    from vonet.evaluation.spmot import TRACKING_SCORES

    scores = {**dict.fromkeys(SCORES, 0.5), **dict.fromkeys(TRACKING_SCORES, 50.0)}
    about = {
        "experiment": "vonet-sprites",
        "dataset": "sprites",
        "data": "world",
        "found_at": "/world",
        "layout": "store",
    }
    about |= {"split": "validation", "protocol": "vonet", "masks": "nearest", "weights": "run", "checksum": "0"}
    about |= {"videos": 2, "seeds": 1, "slots": 5, "parameters": 100, "milliseconds": 1.5, "verdict": "good"}
    rows = [
        {"method": "model", "video": v, "split": "validation", "seed": 0, "start": 0, "scores": scores} for v in "ab"
    ]
    others = {"offline": scores, "trivial": {"k-means": scores, "mixture": scores}, "ceiling": scores, "paper": {}}
    found = {**scores, "std": dict.fromkeys(scores), **others, **about, "rows": rows}
    return json.dumps(found).encode()


def read_results(folder: Path) -> None:
    """As `vonet compare` and `vonet figures` do."""
    from vonet.evaluation.compare import compare
    from vonet.evaluation.report import read_evaluation
    from vonet.figures.comparison import compared, latex, markdown
    from vonet.figures.draw import _benchmark

    if _benchmark(folder / "bench.json") is None:
        raise BadInput("no benchmark")
    found = compared([read_evaluation(folder / "one.json"), read_evaluation(folder / "two.json")])
    markdown(found), latex(found)
    table = compare([folder / "one.json", folder / "two.json"])
    table.table(), json.dumps(table.as_json())


# Options

CHANGES = ["model.slots=7", "model.size=[64, 64]", "model.backbone.groups=4", "model.backbone.channels=[32, 32]"]
CHANGES += [
    "training.batch=16",
    "training.optimizer.eps=1e-8",
    "model.slot_dim=32",
    "training.weights.kl.points=[[0, 1]]",
]
CHANGES += ["model.backbone.strides=[2, 1]", "training.replay.beginnings=0.5", "model.enlargement=nearest"]
CHANGES += [
    "training.optimizer.groups.encoder.clip=null",
    "training.updates=10",
    "model.attention.unet.channels=[4, 8]",
]


class Changes(Reader):
    """`--set OPTION=VALUE`."""

    def write(self, rng, folder: Path) -> Path:
        words = [mutations.of_text(rng, rng.choice(CHANGES)) for _ in range(rng.choice((1, 1, 2)))]
        (folder / "words").write_text(json.dumps(words))
        return folder / "words"


def read_changes(folder: Path) -> None:
    from vonet.experiments.overrides import overridden

    overridden(small_experiment(), json.loads((folder / "words").read_text()))


TEXTS = {
    "area": "0.1%",
    "start": "250",
    "end": "1:02:03",
    "camera": "camera:0",
    "url": "rtsp://u:p@host:80/a?b",
    "seconds": "4.5s",
}


class Texts(Reader):
    """Options that are texts."""

    def write(self, rng, folder: Path) -> Path:
        name = rng.choice(list(TEXTS))
        (folder / "texts").write_text(json.dumps({**TEXTS, name: mutations.of_text(rng, TEXTS[name])}))
        return folder / "texts"


def read_texts(folder: Path) -> None:
    """Each of them, and the first sentence in the end."""
    from vonet.serving.inputs import live_place
    from vonet.serving.objects import ObjectRule
    from vonet.serving.span import Span

    texts = json.loads((folder / "texts").read_text())
    sentences = []
    for read in (
        lambda: ObjectRule(min_area=texts["area"]),
        lambda: Span(texts["start"], texts["end"]),
        lambda: Span(texts["seconds"]),
        lambda: live_place(texts["camera"]),
        lambda: live_place(texts["url"]),
    ):
        try:
            read()
        except BadInput as sentence:
            sentences.append(sentence)
    if sentences:
        raise sentences[0]


# Pictures


def some_pictures() -> dict[str, bytes]:
    frames, ids = layouts.clip()
    found = {
        "grey.png": layouts.png(ids[0]),
        "palette.png": layouts.png(ids[0], "P"),
        "rgb.png": layouts.png(frames[0]),
    }
    found["deep.png"] = layouts.png16(frames[0].astype(np.uint16) * 257, (4, 3, 2, 1, 0))
    for suffix, kind in {"jpg": "JPEG", "bmp": "BMP", "webp": "WEBP", "tif": "TIFF"}.items():
        file = io.BytesIO()
        Image.fromarray(frames[0]).save(file, kind)
        found[f"rgb.{suffix}"] = file.getvalue()
    return found


def read_picture(path: Path) -> None:
    if path.name == "deep.png":
        images.read_rgb16(memoryview(path.read_bytes()), path.name, (6, 8))
        return
    size = images.size_of(path, path.name)
    images.read_rgb(path, path.name, size)
    images.read_binary(path, path.name, size)
    if path.stem != "rgb":
        images.read_ids(path, path.name, size)


class Pictures(Reader):
    """Each is read for itself."""

    def run(self, folder: Path, changed: Path | None = None) -> None:
        for path in sorted(folder.iterdir()) if changed is None else [changed]:
            self.read(path)


class Folders(Reader):
    """Also the names of the files are changed."""

    NAMES = (
        "rgba_00000.png",
        "a" * 200 + ".png",
        "00000000_mask_99999999999.png",
        "9" * 240 + ".png",
        "00001_mask.png",
    )

    def write(self, rng, folder: Path) -> Path:
        if rng.random() < 0.7:
            return super().write(rng, folder)
        path = folder / rng.choice(list(self.files))
        os.rename(path, path.with_name(rng.choice(self.NAMES)))
        return path

    def restore(self, changed: Path, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file() and path.relative_to(folder).as_posix() not in self.files:
                path.unlink()
        super().restore(changed, folder)


def read_npy(folder: Path) -> None:
    path = folder / "a.npy"
    for read in (npy.read_header, lambda file: npy.read_array(file, path.stat().st_size)):
        try:
            with path.open("rb") as file:
                read(file)
        except npy.BadHeader:
            raise BadInput("no array") from None


def readers(scratch: Path) -> list[Reader]:
    """All of them. `scratch` is a folder in which valid files are made first."""

    def made(name: str, make: Callable) -> dict[str, bytes]:
        folder = scratch / name
        make(folder)
        return files_below(folder)

    def davis(folder: Path) -> None:
        layouts.write_davis(folder, "bear", *layouts.clip())
        layouts.write_steve(folder / "steve", *layouts.clip(frames=1), masks=False)
        (folder / "ImageSets").mkdir()
        (folder / "ImageSets" / "val.txt").write_text(
            "/JPEGImages/480p/bear/00000.jpg /Annotations/480p/bear/00000.png\n"
        )

    def movi(folder: Path) -> None:
        layouts.write_shards(folder, [layouts.movi(name=name)[0] for name in "ab"], 1)
        layouts.write_dataset_info(folder, [2])

    def tars(folder: Path) -> None:
        layouts.write_tar(folder / "a-train.tar", layouts.videosaur([layouts.clip(seed) for seed in range(2)]))

    def packed_tars(folder: Path) -> None:
        layouts.write_tar(folder / "a-train.tar", layouts.oclf([layouts.clip(seed) for seed in range(2)]))

    def pickles(folder: Path) -> None:
        for protocol in (2, 4, 5):
            layouts.write_pickle(folder / f"video_{protocol}.pkl", *layouts.clip(), protocol, mass=np.float32(1.5))

    def videos(folder: Path) -> None:
        layouts.write_video(folder / "a.mp4", frames=4, height=16, width=16)
        layouts.write_video(folder / "b.avi", "mpeg4", frames=4, height=16, width=16)
        layouts.write_video(folder / "c.gif", "gif", frames=2, height=16, width=16, pixels="rgb8")

    trained, store = Trained(), made("store", a_store)
    shards = [name for name in store if name.endswith(".npz")]
    pictures, folders = some_pictures(), made("davis", davis)
    records, pickled, clips = made("movi", movi), made("pickles", pickles), made("videos", videos)
    marked = {**store, "unfinished.json": json.dumps({"command": "generate", "seed": 0}).encode()}
    checkpoints, weights = made("run", trained.checkpoint), made("weights", some_weights)
    results = {"one.json": an_evaluation(), "two.json": an_evaluation().replace(b"vonet-sprites", b"savi-laptop")}
    results["bench.json"] = json.dumps({"slots": [1, 2], "milliseconds": {"U-Net": [1.5, 2.5]}}).encode()

    def of_record_set(name: str) -> Callable:
        return mutations.of_json if name.endswith(".json") else mutations.of_records

    def of_tensors(name: str, text: str) -> Callable:
        return partial(mutations.of_tensors, text=text) if name.endswith(".safetensors") else mutations.of_json

    def of_folder(name: str) -> Callable:
        return mutations.of_png if name.endswith(".png") else mutations.of_bytes

    return [
        Reader("store index", 14, read_store, store, {"index.json": mutations.of_json}),
        Rewritten("store shards", 9, read_shards, store, dict.fromkeys(shards, mutations.of_npz)),
        Rewritten(
            "interrupted store",
            5,
            read_marker,
            marked,
            dict.fromkeys(["index.json", "unfinished.json"], mutations.of_json),
        ),
        Reader("log.jsonl", 8, read_log, {"log.jsonl": a_log()}, {"log.jsonl": mutations.of_lines}),
        Reader("weights", 4, read_weights, weights, {"model.safetensors": of_tensors("model.safetensors", "vonet")}),
        Reader("checkpoints", 5, trained.read, checkpoints, {name: of_tensors(name, "facts") for name in checkpoints}),
        Reader("tars", 9, read_videos, made("tars", tars), {"a-train.tar": mutations.of_tar}),
        Reader("gzipped tars", 5, read_videos, made("packed", packed_tars), {"a-train.tar": mutations.of_tar}),
        Reader("npy", 6, read_npy, {"a.npy": layouts.npy(layouts.clip()[0])}, {"a.npy": mutations.of_npy}),
        Reader("TFDS shards", 7, read_videos, records, {name: of_record_set(name) for name in records}),
        Pictures("images", 6, read_picture, pictures, dict.fromkeys(pictures, mutations.of_png)),
        Folders("picture folders", 4, read_videos, folders, {name: of_folder(name) for name in folders}),
        Reader("pickles", 7, read_videos, pickled, dict.fromkeys(pickled, mutations.of_pickle)),
        Reader("video files", 1, read_videos, clips, dict.fromkeys(clips, mutations.of_bytes)),
        Changes("--set", 3, read_changes, {"words": b"[]"}),
        Texts("text options", 2, read_texts, {"texts": json.dumps(TEXTS).encode()}),
        Reader("results", 5, read_results, results, dict.fromkeys(results, mutations.of_json)),
    ]
