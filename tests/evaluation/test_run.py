"""Evaluation of models: streaming, batches, seeds, processes, files; and the methods to beat."""

import csv
import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from tests.reduced import reduced_experiment
from vonet import experiments
from vonet.data.generate import generate
from vonet.data.scenes.video import WorldConfig
from vonet.data.sprites import sprite_videos
from vonet.data.video import ArrayVideo, Video
from vonet.errors import BadInput
from vonet.evaluation import metrics
from vonet.evaluation.protocol import NULL, PROTOCOLS, SCORES
from vonet.evaluation.references import MIXTURE, evaluate_references
from vonet.evaluation.report import Report
from vonet.evaluation.run import PERFECT, Row, evaluate_model, evaluate_trivial, summary
from vonet.evaluation.trivial import TRIVIAL, _fitted, inertia
from vonet.experiments import descriptions, weights
from vonet.interface import State, StepOutput

VONET = PROTOCOLS["vonet"]


@pytest.fixture(scope="module")
def sprites():
    pixels, ids = sprite_videos(5, frames=7, seed=3)
    lengths = [7, 7, 4, 7, 6]
    return [ArrayVideo(f"{i}", pixels[i][:n], ids[i][:n], "validation") for i, n in enumerate(lengths)]


@pytest.fixture(scope="module")
def model():
    """Untrained, with larger weights, so that its masks are not all alike."""
    experiment = experiments.get("vonet-sprites")
    made = experiment.build_model(seed=0)
    with torch.no_grad():
        for parameter in made.attention.parameters():
            parameter.mul_(1.7)
    return made.eval()


@dataclass(frozen=True)
class _Count(State):
    """How many frames it has seen."""

    seen: torch.Tensor


class ColourModel(torch.nn.Module):
    """Knows the answer: a slot for each colour channel that is set. Its state counts frames."""

    def __init__(self, wrong_after=None):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(9.0))
        self.wrong_after = wrong_after
        self.largest_batch = 0

    def initial_state(self, batch, slots=None, generator=None):
        return _Count(torch.zeros(batch, dtype=torch.long))

    def step(self, frame, state):
        self.largest_batch = max(self.largest_batch, len(frame))
        rest = 1 - frame.sum(dim=1, keepdim=True).clamp(max=1)
        logits = torch.cat([rest, frame], dim=1)
        if self.wrong_after is not None:
            swapped = logits[:, [0, 2, 1, 3]]
            late = (state.seen >= self.wrong_after).view(-1, 1, 1, 1)
            logits = torch.where(late, swapped, logits)
        masks = (self.scale * logits).log_softmax(dim=1)
        slots = torch.zeros(len(frame), 4, 1)
        return StepOutput(masks, tuple(frame.shape[-2:]), "nearest", slots, slots), _Count(state.seen + 1)


def coloured_video(name="v", frames=12, size=(16, 20), seed=0):
    """Objects 1, 2 and 3 are red, green and blue."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((frames, *size), np.uint8)
    for number in (1, 2, 3):
        y, x = rng.integers(0, size[0] - 4), (number - 1) * 6
        for t in range(frames):
            ids[t, (y + t) % (size[0] - 4) : (y + t) % (size[0] - 4) + 4, x : x + 5] = number
    pixels = np.stack([(ids == number) * 255 for number in (1, 2, 3)], axis=-1).astype(np.uint8)
    return ArrayVideo(name, pixels, ids, "validation")


# A model


def test_a_model_that_knows_scores_one():
    rows = evaluate_model(ColourModel(), (16, 20), [coloured_video(seed=i) for i in range(3)], VONET, progress=False)
    assert len(rows) == 3
    for row in rows:
        for name in ("fg_ari", "miou", "ari", "mbo", "boundary_f"):
            assert row.scores[name] == 1
        assert row.scores["identity_switches"] == 0


def test_the_state_is_carried_through_the_video_and_windows_start_anew():
    """After some frames this model swaps two slots: whole videos show it, windows of six restart it before."""
    video = coloured_video(frames=12)
    (whole,) = evaluate_model(ColourModel(wrong_after=6), (16, 20), [video], VONET, progress=False)
    windows = evaluate_model(ColourModel(wrong_after=9), (16, 20), [video], PROTOCOLS["steve"], progress=False)
    assert whole.scores["identity_switches"] == pytest.approx(2 / 3)
    assert whole.scores["fg_ari"] < 1
    assert [row.start for row in windows] == [0, 6]
    assert [row.scores["fg_ari"] for row in windows] == [1, 1]


def test_videos_of_another_size_are_brought_to_the_model_and_scored_at_their_own():
    video = coloured_video(size=(32, 40))
    (row,) = evaluate_model(ColourModel(), (16, 20), [video], VONET, progress=False)
    assert 0.7 < row.scores["miou"] < 1
    (exact,) = evaluate_model(ColourModel(), (32, 40), [video], VONET, progress=False)
    assert exact.scores["miou"] == 1


def test_streaming_and_offline_give_the_scores_of_the_unrolled_video(model, sprites):
    from vonet.evaluation.protocol import score
    from vonet.evaluation.run import _seed
    from vonet.interface import Clip, segment_ids

    streaming, offline = evaluate_model(model, model.size, sprites[:1], VONET, offline=True, progress=False)
    assert (streaming.method, offline.method) == ("model", "offline")
    video = sprites[0]
    frames = torch.from_numpy(video.frames).permute(0, 3, 1, 2)[None].float() / 255
    state = model.initial_state(1, generator=torch.Generator().manual_seed(_seed(video, 0, 0)))
    with torch.no_grad():
        forwards = model.unroll(Clip(frames), state)
        backwards = model.unroll(Clip(frames.flip(1)), forwards.state)
    ids = segment_ids(forwards.log_masks[0], None, video.size, forwards.enlargement, 0.3)
    assert streaming.scores == pytest.approx(score(video.ids, ids), abs=1e-3)
    ids = segment_ids(backwards.log_masks[0], None, video.size, backwards.enlargement, 0.3)
    assert offline.scores == pytest.approx(score(video.ids[::-1], ids), abs=1e-3)
    assert offline.scores != streaming.scores


def test_windows_have_no_offline_pass(model, sprites):
    rows = evaluate_model(model, model.size, sprites[:1], PROTOCOLS["steve"], offline=True, progress=False)
    assert {row.method for row in rows} == {"model"}


def test_no_batch_order_or_company_changes_a_score(model, sprites):
    def scores(batch, videos):
        rows = evaluate_model(model, model.size, videos, VONET, batch=batch, progress=False)
        return {row.video: row.scores for row in rows}

    one = scores(1, sprites)
    assert len({tuple(s.values()) for s in one.values()}) == 5
    for batch, videos in ((2, sprites), (5, sprites), (8, sprites[::-1]), (3, sprites[1:4])):
        for name, found in scores(batch, videos).items():
            assert found == pytest.approx(one[name], abs=1e-6), (batch, name)


def test_a_video_that_ends_leaves_the_batch():
    videos = [coloured_video(f"{n}", frames=n, seed=n) for n in (3, 9, 5)]
    watcher = ColourModel(wrong_after=4)
    rows = evaluate_model(watcher, (16, 20), videos, VONET, batch=3, progress=False)
    assert watcher.largest_batch == 3
    assert [row.scores["identity_switches"] for row in rows] == pytest.approx([0, 2 / 3, 2 / 3])


def test_seeds_are_draws_of_noise_and_give_a_spread(model, sprites):
    rows = evaluate_model(model, model.size, sprites[:2], VONET, seeds=3, progress=False)
    assert [row.seed for row in rows] == [0, 0, 1, 1, 2, 2]
    again = evaluate_model(model, model.size, sprites[:2], VONET, seeds=1, progress=False)
    assert [row.scores for row in again] == [row.scores for row in rows[:2]]
    mean, std = summary(rows)["model"]["fg_ari"]
    by_seed = [np.mean([r.scores["fg_ari"] for r in rows if r.seed == s]) for s in range(3)]
    assert mean == pytest.approx(np.mean(by_seed))
    assert std == pytest.approx(np.std(by_seed, ddof=1))
    assert std > 0


class LongVideo(ArrayVideo):
    """A short video again and again; counts what is held at once."""

    def __init__(self, video, length):
        super().__init__(video.name, video.frames, video.ids, video.split)
        self._long, self.largest = length, 0

    def __len__(self):
        return self._long

    def _read(self, start, stop):
        self.largest = max(self.largest, stop - start)
        return np.stack([self._frames[t % len(self._frames)] for t in range(start, stop)])

    def _read_ids(self, start, stop):
        return np.stack([self._ids[t % len(self._ids)] for t in range(start, stop)])


def test_memory_does_not_grow_with_the_video():
    import tracemalloc

    peaks = []
    for length in (100, 500):
        video = LongVideo(coloured_video(frames=10), length)
        tracemalloc.start()
        (row,) = evaluate_model(ColourModel(), (16, 20), [video], VONET, progress=False)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert row.scores["miou"] == 1
        assert video.largest <= 8
    assert peaks[1] < peaks[0] + 200_000  # 400 frames with ids are 1.4 MB; when rubbish is collected is chance


def test_what_cannot_be_scored_is_refused(sprites):
    nameless = ArrayVideo("no ids", sprites[0].frames)
    with pytest.raises(BadInput, match="no ids has no true ids"):
        evaluate_model(ColourModel(), (32, 32), [nameless], VONET, progress=False)
    with pytest.raises(BadInput, match="2 has 4 frames; the protocol 'steve' needs at least 6"):
        evaluate_model(ColourModel(), (32, 32), sprites, PROTOCOLS["steve"], progress=False)
    with pytest.raises(BadInput, match="at least 1 of each"):
        evaluate_model(ColourModel(), (32, 32), sprites, VONET, batch=0, progress=False)
    with pytest.raises(BadInput, match="no video"):
        evaluate_model(ColourModel(), (32, 32), [], VONET, progress=False)


# Methods to beat


def test_trivial_methods_are_what_they_say():
    video = coloured_video()
    made = {name: make(video, 5, np.random.default_rng(0))(video.frames) for name, make in TRIVIAL.items()}
    assert (made["one segment"] == 1).all()
    assert set(np.unique(made["random"])) == {1, 2, 3, 4, 5}
    assert abs(metrics.ari(video.ids, made["random"])) < 0.01
    assert set(np.unique(made["blocks"])) == {1, 2, 3, 4, 5}
    assert (made["blocks"] == made["blocks"][0]).all()
    assert metrics.fg_ari(video.ids, made["k-means"]) > 0.9  # colours and places tell these objects apart
    assert NULL not in made["k-means"]
    apart = np.zeros((2, 8, 40, 3), np.uint8)
    apart[:, 2:6, 2:6] = apart[:, 2:6, 34:38] = 255  # two objects of one colour: only their places tell them apart
    found = TRIVIAL["k-means"](ArrayVideo("two", apart), 6, np.random.default_rng(0))(apart)
    assert set(np.unique(found[:, 2:6, 2:6])).isdisjoint(np.unique(found[:, 2:6, 34:38]))


def test_k_means_is_as_good_as_scikit_learns():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(rng.uniform(0, 1, 5), 0.08, (300, 5)) for _ in range(7)])
    ours = inertia(points, _fitted(points, 7, np.random.default_rng(1)))
    theirs = KMeans(7, n_init=10, random_state=0).fit(points)
    assert inertia(points, theirs.cluster_centers_) == pytest.approx(theirs.inertia_)
    assert ours <= 1.05 * theirs.inertia_


def test_k_means_survives_a_video_of_one_colour():
    video = ArrayVideo("grey", np.full((2, 1, 1, 3), 9, np.uint8), np.zeros((2, 1, 1), np.uint8))
    assert TRIVIAL["k-means"](video, 4, np.random.default_rng(0))(video.frames).shape == (2, 1, 1)


def test_the_ceiling_is_one_for_cells_like_pixels_and_less_for_fewer():
    videos = [coloured_video(seed=i) for i in range(2)]

    def ceiling(cells, how):
        rows = evaluate_trivial(videos, VONET, 4, cells, how, progress=False)
        assert {row.method for row in rows} == {*TRIVIAL, PERFECT}
        return summary(rows)[PERFECT]

    assert ceiling((16, 20), "nearest")["miou"][0] == 1
    assert ceiling((16, 20), "nearest")["null_share"][0] == 0
    nearest, bilinear = (ceiling((8, 10), how)["miou"][0] for how in ("nearest", "bilinear"))
    assert 0.3 < nearest < 1
    assert nearest != bilinear


def test_perfect_masks_keep_their_names_when_objects_come_late():
    video = coloured_video(frames=20)
    ids = video.ids.copy()
    ids[:10][ids[:10] == 1] = 0  # the first object comes in the second half
    rows = evaluate_trivial([ArrayVideo("late", video.frames, ids)], VONET, 4, (16, 20), "nearest", progress=False)
    assert summary(rows)[PERFECT]["fg_ari"][0] == 1


def test_long_videos_count_no_more_than_short_ones():
    videos = [coloured_video("short", 6), coloured_video("long", 24, seed=1)]
    rows = evaluate_model(ColourModel(), (16, 20), videos, PROTOCOLS["steve"], progress=False)
    assert [row.start for row in rows] == [0, 0, 6, 12, 18]
    changed = [Row(**{**vars(row), "scores": dict.fromkeys(SCORES, float(row.video == "short"))}) for row in rows]
    assert summary(changed)["model"]["miou"][0] == 0.5


def test_weights_that_are_not_numbers_are_refused():
    broken = ColourModel()
    broken.scale.data.fill_(torch.nan)
    with pytest.raises(BadInput, match="some masks of v are not finite"):
        evaluate_model(broken, (16, 20), [coloured_video()], VONET, progress=False)


def test_slots_and_enlargement_can_be_chosen(model, sprites):
    def scores(**options):
        return evaluate_model(model, model.size, sprites[:2], VONET, progress=False, **options)

    assert all(row.scores["slots_used"] <= 2 for row in scores(slots=2))
    assert any(row.scores["slots_used"] > 2 for row in scores())
    own, bilinear, nearest = (scores(enlargement=how) for how in (None, "bilinear", "nearest"))
    assert [row.scores for row in own] == [row.scores for row in bilinear]
    assert [row.scores for row in own] != [row.scores for row in nearest]


def test_windows_begin_with_noise_of_their_own(model):
    """A still video looks the same in each window, but the slots do not start the same."""
    pixels, ids = sprite_videos(1, frames=1)
    still = ArrayVideo("still", np.repeat(pixels[0], 12, axis=0), np.repeat(ids[0], 12, axis=0))
    first, second = evaluate_model(model, model.size, [still], PROTOCOLS["steve"], progress=False)
    assert first.scores != second.scores


# Reports


def rows_with(model, rival):
    scores = dict.fromkeys(SCORES, 0.5)
    return [
        Row("model", "v", "validation", 0, 0, {**scores, "fg_ari": model[0], "miou": model[1]}),
        Row("one segment", "v", "validation", 0, 0, {**scores, "fg_ari": 0.0, "miou": 0.2}),
        Row("k-means", "v", "validation", 0, 0, {**scores, "fg_ari": rival[0], "miou": rival[1]}),
    ]


def test_the_verdict_says_who_is_better():
    better = Report({}, rows_with((0.5, 0.5), (0.4, 0.1)), {}).verdict()
    assert "it beats every trivial method: 10.0 points in FG-ARI ahead of k-means and 30.0 points in mIoU" in better
    neither = Report({}, rows_with((0.3, 0.1), (0.4, 0.1)), {}).verdict()
    assert "it beats no trivial method, so it shows no learning: 10.0 points in FG-ARI behind k-means" in neither
    one = Report({}, rows_with((0.3, 0.5), (0.4, 0.1)), {}).verdict()
    assert "it does not beat every trivial method: 10.0 points in FG-ARI behind k-means and 30.0 points in" in one
    level = Report({}, rows_with((0.4, 0.1), (0.4, 0.1)), {}).verdict()
    assert "shows no learning" in level
    assert "0.0 points in FG-ARI level with k-means" in level


def test_a_model_that_does_not_beat_the_mixture_is_told_so():
    mixture = Row("mixture (no learning)", "v", "validation", 0, 0, {**dict.fromkeys(SCORES, 0.5), "fg_ari": 0.8})
    report = Report({}, [*rows_with((0.7, 0.6), (0.4, 0.1)), mixture], {})
    assert "beats every trivial method, but not mixture (no learning): 10.0 points in FG-ARI" in report.verdict()
    behind = Report({}, [*rows_with((0.7, 0.4), (0.4, 0.1)), mixture], {}).verdict()
    assert "but not mixture (no learning): 10.0 points in FG-ARI behind mixture" in behind  # in both scores
    ahead = Report({}, [*rows_with((0.9, 0.6), (0.4, 0.1)), mixture], {}).verdict()
    assert "it beats every method without learning: 10.0 points in FG-ARI ahead of mixture" in ahead
    assert "mixture (no learning)" in report.table()
    assert report.as_json()["trivial"]["mixture (no learning)"]["fg_ari"] == 0.8


def test_the_paper_stands_beside_ours():
    table = Report({}, rows_with((0.5, 0.5), (0.4, 0.1)), {"fg_ari": 91.0, "miou": 60.5}).table()
    _, head, _, first, second, *_ = table.splitlines()
    assert head.split() == ["model", "paper", "one", "segment", "k-means"]
    assert first.split() == ["FG-ARI", "50.0", "91.0", "0.0", "40.0"]
    assert second.split() == ["mIoU", "50.0", "60.5", "20.0", "10.0"]


# Weights and the command


def test_every_experiment_is_written_and_read_back(tmp_path):
    for name in experiments.names():
        experiment = experiments.get(name)
        text = json.dumps(weights.described(experiment))
        assert descriptions.read_experiment(text) == experiment


def test_weights_come_back_exactly(tmp_path, model):
    experiment = experiments.get("vonet-sprites")
    weights.save(tmp_path, model, experiment)
    for path in (tmp_path, tmp_path / "model.safetensors"):
        again, same = weights.load(path)
        assert same == experiment
        assert not again.training
        for (name, a), (other, b) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
            assert name == other
            assert torch.equal(a, b)
    assert json.loads((tmp_path / "config.json").read_text())["name"] == "vonet-sprites"


def test_weights_that_do_not_fit_are_refused(tmp_path, model):
    from safetensors.torch import save_file

    experiment = experiments.get("vonet-sprites")
    weights.save(tmp_path, model, experiment)
    file = tmp_path / "model.safetensors"
    whole, text = file.read_bytes(), json.dumps(weights.described(experiment))
    with pytest.raises(BadInput, match="there are no weights at"):
        weights.load(tmp_path / "nowhere")
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="damaged, or not a file of weights"):
        weights.load(tmp_path)
    save_file({"x": torch.zeros(1)}, file)
    with pytest.raises(BadInput, match="does not say what model"):
        weights.load(tmp_path)
    save_file({"x": torch.zeros(1)}, file, metadata={"vonet": text})
    with pytest.raises(BadInput, match=r"holds weights of vonet 0.x, which this version cannot read: train again"):
        weights.load(tmp_path)
    save_file({"x": torch.zeros(1)}, file, metadata={"vonet": text, "format": "1"})
    with pytest.raises(BadInput, match="do not fit the model"):
        weights.load(tmp_path)
    older = json.loads(text)
    del older["cost"], older["model"]["enlargement"]  # an older version did not have these: the defaults serve
    assert descriptions.read_experiment(json.dumps(older)).model.enlargement == "nearest"
    for old, new in (('"slots": 5', '"slotz": 5'), ("UNetConfig", "VNetConfig"), ("{", "")):
        save_file({"x": torch.zeros(1)}, file, metadata={"vonet": text.replace(old, new), "format": "1"})
        with pytest.raises(BadInput, match="cannot be read"):
            weights.load(tmp_path)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, model):
    """Weights, and a small world to score them on."""
    folder = tmp_path_factory.mktemp("evaluate")
    weights.save(folder / "run", model, experiments.get("vonet-sprites"))
    generate(WorldConfig("A", size=32, frames=6), {"train": 1, "validation": 5}, folder / "world", 1)
    return folder


def run(folder, *arguments, launcher=("-m", "vonet")):
    return subprocess.run(
        [sys.executable, *launcher, "evaluate", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


@pytest.mark.parametrize("size", [(67, 101), (71, 71), (32, 48)])
def test_the_mixture_of_the_tables_depends_on_the_videos_and_slots_alone(size):
    frames = np.random.default_rng(0).integers(0, 255, (2, *size, 3), dtype=np.uint8)
    ids = np.zeros((2, *size), np.int64)
    ids[:, :20, :20] = 1
    video = ArrayVideo("noise", frames, ids, "validation")

    def scores(model):
        rows = evaluate_references(model, [video], PROTOCOLS["vonet"], slots=3, progress=False)
        return next(row.scores for row in rows if row.method == MIXTURE)

    small, large = (reduced_experiment(experiments.get(f"{m}-laptop-a")).build_model() for m in ("savi", "scalor"))
    assert small.size != large.size
    assert scores(small) == scores(large)


def test_the_mixture_is_evaluated_by_its_name(prepared):
    done = run(prepared, "mixture", "world", "--slots", 4, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["experiment"], said["parameters"], said["slots"]) == ("mixture", 0, 4)
    assert set(said["trivial"]) == set(TRIVIAL)  # it is not compared with itself
    assert said["verdict"].startswith("it has no parameters and does not learn: ")
    assert said["fg_ari"] > said["trivial"]["blocks"]["fg_ari"]
    assert said["offline"]
    assert len(list((prepared / "evaluation").glob("*.csv"))) == 1


def test_the_command_and_its_files(prepared):
    done = run(prepared, "run", "world", "--split", "validation", "--json", "--seeds", 2)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(SCORES) <= set(said)
    assert set(said["trivial"]) == {*TRIVIAL, "mixture (no learning)"}
    assert said["paper"] == {}
    for scores in (*said["trivial"].values(), said["ceiling"], said["std"]):
        assert set(scores) == set(SCORES)
    assert (said["videos"], said["protocol"], said["masks"], said["seeds"]) == (5, "vonet", "bilinear", 2)
    assert "trivial method" in said["verdict"]
    (path,) = (prepared / "run/evaluation").glob("*world-validation-vonet-bilinear-5videos-5slots-2seeds.json")
    written = json.loads(path.read_text())
    model_rows = [row for row in written["rows"] if row["method"] == "model"]
    assert len(model_rows) == 10
    assert said["fg_ari"] == pytest.approx(np.mean([row["scores"]["fg_ari"] for row in model_rows]))
    with path.with_suffix(".csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 20 + 6 * 5  # model and offline with two seeds; six other methods
    assert float(lines[0]["miou"]) == model_rows[0]["scores"]["miou"]


def test_two_processes_score_as_one(prepared):
    alone = run(prepared, "run/model.safetensors", "world", "--json", "--out", "alone")
    assert alone.returncode == 0, alone.stderr
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "vonet")
    together = run(prepared, "run", "world", "--json", "--out", "together", launcher=launcher)
    assert together.returncode == 0, together.stderr
    one, two = (json.loads(done.stdout) for done in (alone, together))
    assert one["trivial"] == two["trivial"]
    assert {k: one[k] for k in SCORES} == pytest.approx({k: two[k] for k in SCORES}, abs=1e-6)
    assert one["std"]["miou"] is None
    order = []
    for folder in ("alone", "together"):
        (path,) = (prepared / folder).glob("*.json")
        rows = json.loads(path.read_text())["rows"]
        order.append([row["video"] for row in rows if row["method"] == "model"])
    assert order[0] == order[1]


def test_options_reach_the_model_and_the_result(prepared):
    done = run(prepared, "run", "world", "--json", "--out", "chosen", "--slots", 2, "--masks", "nearest", "--videos", 1)
    said = json.loads(done.stdout)
    assert (said["slots"], said["masks"], said["videos"]) == (2, "nearest", 1)
    assert said["slots_used"] <= 2
    assert said["trivial"]["random"]["slots_used"] == 2
    assert [path.name for path in (prepared / "chosen").glob("*nearest-1videos-2slots-1seeds.csv")]


def test_the_papers_scores_stand_only_beside_its_own_experiment(tmp_path):
    """On MOVi-A's validation split, as the paper does it: there. With other slots, or on another split: not."""
    from tests.data import layouts
    from tests.reduced import reduced_experiment
    from vonet.evaluation.evaluate import evaluate

    made = reduced_experiment(experiments.get("vonet-movi-a"))
    weights.save(tmp_path / "run", made.build_model(seed=0), made)
    for split in ("train", "validation"):
        layouts.write_shards(tmp_path / "movi", [layouts.movi(frames=2, height=32, width=32)[0]], 1, split=split)
    reports = [
        evaluate(tmp_path / "run", tmp_path / "movi", progress=False, **options)
        for options in ({}, {"slots": 2}, {"split": "train"}, {"protocol": "savi"}, {"masks": "bilinear"})
    ]
    assert [bool(report.paper) for report in reports] == [True, False, False, False, False]
    assert reports[0].as_json()["paper"] == {"fg_ari": 0.91, "miou": 0.605}


def test_videos_that_cannot_be_read_are_said(prepared, tmp_path):
    import shutil

    shutil.copytree(prepared / "world", tmp_path / "world")
    (tmp_path / "world/validation/000002.npz").write_bytes(b"cut")
    done = run(tmp_path, prepared / "run", tmp_path / "world", "--json", "--out", tmp_path / "out")
    assert "vonet: problem:" in done.stderr
    assert "000002.npz" in json.loads(done.stdout)["problems"][0]
    assert json.loads(done.stdout)["videos"] == 4


def test_mistakes_get_a_sentence(prepared):
    for arguments, words in [
        (["nowhere", "world"], "there are no weights at nowhere"),
        (["run", "nowhere"], "there is nothing at 'nowhere'"),
        (["run", "world", "--split", "test"], "has no split 'test'"),
        (["run", "world", "--protocol", "ours"], "there is no protocol 'ours'"),
        (["run", "world", "--masks", "cubic"], "masks is 'cubic'; expected one of 'nearest', 'bilinear'"),
        (["run", "world", "--videos", 0], "0 videos were asked for"),
    ]:
        done = run(prepared, *arguments)
        assert done.returncode == 2, arguments
        assert words in done.stderr, arguments
        assert "Traceback" not in done.stderr


def test_a_video_is_the_same_wherever_it_stands():
    from vonet.evaluation.run import _seed

    a, b = (ArrayVideo("x", np.zeros((1, 2, 2, 3), np.uint8), split=s) for s in ("train", "validation"))
    assert isinstance(a, Video)
    assert _seed(a, 0, 0) == _seed(a, 0, 0)
    assert len({_seed(a, 0, 0), _seed(a, 1, 0), _seed(a, 0, 6), _seed(b, 0, 0)}) == 4
