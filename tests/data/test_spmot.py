"""Sprites-MOT: each fact of its description, measured on generated streams, clips and pixels."""

import hashlib
import json
from itertools import pairwise

import numpy as np
import pytest

import vonet.data
from vonet import cli
from vonet.data.generate import generate, preview
from vonet.data.spmot import (
    COLOURS,
    SHAPES,
    SPRITE,
    SpritesMotConfig,
    _stream,
    clip_sprites,
    draw,
    opacity,
    stream_sprites,
    templates,
)
from vonet.errors import BadInput

FRAMES = 30_000


@pytest.fixture(scope="module")
def stream():
    return stream_sprites(0, "test", 0, FRAMES)


@pytest.fixture(scope="module")
def lives(stream):
    """Each sprite that is seen from birth to disappearance: its place, its frames, and its rows of the stream."""
    found = []
    for place in range(3):
        drawn = np.flatnonzero(stream["drawn"][:, place])
        for frames in np.split(drawn, np.flatnonzero(np.diff(drawn) > 1) + 1):
            if frames[-1] + 1 < FRAMES:
                found.append((place, frames, stream[frames, place]))
    return found


def centres(sprites):
    return np.stack([sprites["row"], sprites["column"]], axis=-1).astype(float)


def clips_of(split, count, seed=0):
    return [clip_sprites(seed, split, index) for index in range(count)]


def sprite(shape="square", colour=0, height=21, width=21, row=64, column=64):
    return np.array((True, 0, SHAPES.index(shape), colour, height, width, row, column), SPRITE)


def frame_of(*sprites):
    """One frame, 128 pixels, with these sprites in places 0 and on."""
    content = np.zeros((1, 3), SPRITE)
    content[0, : len(sprites)] = np.stack(sprites)
    frames, ids = draw(content, 128)
    return frames[0], ids[0]


# Shapes


def test_templates_are_a_disc_a_square_a_triangle_and_a_diamond():
    disc, square, triangle, diamond = (template > 0 for template in templates())
    assert set(np.unique(templates())) == {0, 255}
    distance = np.array([[np.hypot(i - 10, j - 10) for j in range(21)] for i in range(21)])
    assert disc[distance <= 10.5].all()
    assert not disc[distance > 10.5].any()
    assert square.all()
    widths = triangle.sum(axis=1)
    assert triangle[0].nonzero()[0].tolist() == [10]  # the apex is up
    assert (np.diff(widths) >= 0).all()
    assert widths[-1] == 21
    assert np.array_equal(triangle, triangle[:, ::-1])
    assert diamond.sum(axis=1).tolist() == [*range(1, 22, 2), *range(19, 0, -2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_edges_are_soft_except_those_of_squares(shape):
    soft = [
        ((alpha > 0) & (alpha < 255)).any()
        for height, width in ((18, 24), (22, 19), (25, 25))
        for alpha in [opacity(SHAPES.index(shape), height, width)]
    ]
    assert soft == [shape != "square"] * 3
    assert np.array_equal(opacity(SHAPES.index(shape), 21, 21), templates()[SHAPES.index(shape)])


def test_resizing_keeps_the_area_and_the_symmetry_of_a_shape():
    for number, template in enumerate(templates().astype(float)):
        resized = opacity(number, 25, 18).astype(float)
        assert resized.shape == (25, 18)
        assert resized.sum() / (25 * 18) == pytest.approx(template.sum() / 21**2, rel=0.03)
        assert np.abs(resized - resized[:, ::-1]).max() <= 1  # opacities are rounded


def test_soft_edges_blend_with_what_lies_below():
    red, blue = COLOURS.index((255, 0, 0)), COLOURS.index((0, 0, 255))
    alpha = opacity(SHAPES.index("disc"), 25, 24)
    row, column = np.argwhere((alpha > 60) & (alpha < 200))[0]
    frame, _ = frame_of(sprite("square", blue, 25, 25), sprite("disc", red, 25, 24))
    mixed = frame[64 - 12 + row, 64 - 12 + column]
    assert mixed.tolist() == [alpha[row, column], 0, 255 - alpha[row, column]]


# Looks


def test_sizes_follow_scale_and_aspect_ratio(lives):
    height, width = (np.array([sprites[name][0] for _, _, sprites in lives], float) for name in ("height", "width"))
    scale, ratio = np.sqrt(height * width) / 21, height / width
    assert 0.9 - 0.03 < scale.min() < 0.92
    assert 1.08 < scale.max() < 1.1 + 0.03
    assert 0.8 - 0.05 < ratio.min() < 0.84
    assert 1.16 < ratio.max() < 1.2 + 0.06
    assert np.quantile(scale, [0.25, 0.5, 0.75]) == pytest.approx([0.95, 1, 1.05], abs=0.015)
    assert np.quantile(ratio, [0.25, 0.5, 0.75]) == pytest.approx([0.9, 1, 1.1], abs=0.025)
    assert abs(np.corrcoef(scale, ratio)[0, 1]) < 0.05


def test_the_looks_of_a_sprite_never_change(lives):
    for _, _, sprites in lives[:500]:
        for name in ("shape", "colour", "height", "width", "birth"):
            assert len(np.unique(sprites[name])) == 1


def test_six_colours_and_four_shapes_are_equally_likely_and_independent(lives):
    assert sorted(COLOURS) == [(0, 0, 255), (0, 255, 0), (0, 255, 255), (255, 0, 0), (255, 0, 255), (255, 255, 0)]
    table = np.zeros((6, 4))
    for _, _, sprites in lives:
        table[sprites["colour"][0], sprites["shape"][0]] += 1
    expected = len(lives) / 24
    assert ((table - expected) ** 2 / expected).sum() < 45  # χ² of 23 degrees of freedom: 0.4 % lie above


def test_two_sprites_may_look_the_same(stream):
    both = stream["drawn"][:, 0] & stream["drawn"][:, 1]
    alike = (stream["colour"][:, 0] == stream["colour"][:, 1]) & (stream["shape"][:, 0] == stream["shape"][:, 1])
    assert alike[both].mean() == pytest.approx(1 / 24, abs=0.02)


# Motion


def test_sprites_move_straight_at_5_3_pixels_per_frame(lives):
    for _, frames, sprites in lives:
        path = centres(sprites)
        travelled = np.linalg.norm(path - path[0], axis=1)
        assert np.abs(travelled - 5.3 * (frames - frames[0])).max() <= 0.75  # the position is rounded
        line = (path[-1] - path[0]) / np.linalg.norm(path[-1] - path[0])
        assert np.abs((path - path[0]) @ [-line[1], line[0]]).max() <= 1.5


def test_sprites_cross_from_one_side_to_the_opposite_side(lives):
    directions = np.zeros(4, int)
    along = []
    for _, _, sprites in lives:
        path = centres(sprites)
        step = (path[-1] - path[0]) / (len(path) - 1)
        ways = [(path[0, axis] == start) & (side * step[axis] > 0) for axis in (0, 1) for start, side in SIDES]
        ways = [
            way and 107 - abs(path[-1, axis] - path[0, axis]) < 6 for way, axis in zip(ways, (0, 0, 1, 1), strict=True)
        ]
        assert any(ways), path
        if sum(ways) == 1:
            directions[ways.index(True)] += 1
            along.append(path[0, 1 - ways.index(True) // 2])
    assert directions.sum() > 0.97 * len(lives)  # the rest go from corner to corner
    assert np.abs(directions / directions.sum() - 0.25).max() < 0.03
    assert (min(along), max(along)) == (10, 117)
    assert np.quantile(along, [0.25, 0.5, 0.75]) == pytest.approx([36.75, 63.5, 90.25], abs=4)


SIDES = ((10, 1), (117, -1))


def test_a_sprite_disappears_when_its_middle_is_less_than_10_pixels_from_a_border(lives):
    for _, _, sprites in lives:
        path = centres(sprites)
        assert path.min() >= 10
        assert path.max() <= 117
        after = path[-1] + (path[-1] - path[0]) / (len(path) - 1)
        assert after.min() < 10 + 1 or after.max() > 117 - 1  # up to rounding


def test_nothing_is_drawn_in_the_frame_of_birth_and_everything_from_the_next_on(stream, lives):
    for place, frames, sprites in lives:
        birth = sprites["birth"][0]
        assert frames[0] == birth + 1
        assert not stream["drawn"][birth, place]
    _, frames, sprites = lives[0]
    _, ids = draw(stream[frames[0] - 1 : frames[0] + 1], 128)
    place = lives[0][0]
    assert not (ids[0] == place + 1).any()
    assert (ids[1] == place + 1).any()
    assert 10 in centres(sprites)[0] or 117 in centres(sprites)[0]  # the first drawn position is the start itself


def test_five_frames_of_waiting_and_then_birth_with_probability_one_half(stream, lives):
    """A place that is last drawn in frame t is empty in t + 1, waits until t + 6 and may give birth from t + 7 on."""
    waited = []
    for (place, frames, _), (next_place, _, sprites) in pairwise(lives):
        if place == next_place:
            waited.append(sprites["birth"][0] - (frames[-1] + 7))
    waited = np.array(waited)
    assert len(waited) > 2500
    assert waited.min() == 0
    for frames in range(4):
        assert (waited == frames).mean() == pytest.approx(0.5 ** (frames + 1), abs=0.03)


def test_streams_begin_with_five_frames_of_waiting():
    births = [stream_sprites(0, "train", n, 40)["birth"] for n in range(200)]
    first = np.concatenate([np.where(b > 0, b, 99).min(axis=0) for b in births])
    assert first.min() == 5
    assert (first == 5).mean() == pytest.approx(0.5, abs=0.06)
    assert not any(stream_sprites(0, "train", n, 40)["drawn"][:6].any() for n in range(200))


def test_places_are_independent(stream):
    drawn = stream["drawn"]
    assert drawn.mean() == pytest.approx(22.4 / (22.4 + 1 + 5 + 2), abs=0.01)  # drawn of drawn, gone, waiting, birth
    assert (drawn.sum(axis=1) == 3).mean() == pytest.approx(drawn.mean() ** 3, abs=0.06)
    assert set(np.unique(drawn.sum(axis=1))) == {0, 1, 2, 3}


# Pixels


def test_a_pixel_is_black_exactly_where_no_sprite_is(stream):
    frames, ids = draw(stream[1000:1200], 128)
    assert np.array_equal(frames.any(axis=-1), ids > 0)
    assert frames.shape == (200, 128, 128, 3)
    assert frames.max() == 255


def test_a_sprite_stands_where_its_row_and_column_say():
    _, ids = frame_of(sprite("square", height=21, width=25, row=40, column=70))
    rows, columns = ids.nonzero()
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (30, 50, 58, 82)


def test_what_lies_outside_the_canvas_is_cut_off():
    _, ids = frame_of(sprite("square", height=25, width=25, row=10, column=117))
    rows, columns = ids.nonzero()
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (0, 22, 105, 127)


def test_later_sprites_are_drawn_on_top_and_lower_masks_lose_what_is_covered():
    low, middle, top = (sprite(colour=i, row=60 + 6 * i, column=60 + 6 * i) for i in range(3))
    frame, ids = frame_of(low, middle, top)
    assert (ids == 3).sum() == 21**2
    assert (ids == 2).sum() == 21**2 - 15**2
    assert (ids == 1).sum() == 21**2 - 15**2
    for number in range(3):
        assert np.unique(frame[ids == number + 1], axis=0).tolist() == [list(COLOURS[number])]


def test_soft_edges_belong_to_the_upper_sprite():
    alpha = opacity(SHAPES.index("disc"), 25, 24)
    _, ids = frame_of(sprite("square", 0, 25, 25), sprite("disc", 1, 25, 24))
    assert (ids == 2).sum() == (alpha > 0).sum()
    assert ((alpha > 0) & (alpha < 255)).any()


def test_smaller_sizes_keep_every_second_or_fourth_pixel(stream):
    large, ids = draw(stream[500:520], 128)
    for size in (64, 32):
        small, small_ids = draw(stream[500:520], size)
        assert np.array_equal(small, large[:, :: 128 // size, :: 128 // size])
        assert np.array_equal(small_ids, ids[:, :: 128 // size, :: 128 // size])


# Clips and streams


def test_clips_are_consecutive_pieces_of_ten_frames():
    test = clips_of("test", 30)
    assert np.array_equal(np.concatenate(test), stream_sprites(0, "test", 0, 300))
    train = clips_of("train", 310)
    assert np.array_equal(np.concatenate(train[:150]), stream_sprites(0, "train", 0, 1500))
    assert np.array_equal(np.concatenate(train[150:300]), stream_sprites(0, "train", 1, 1500))
    assert np.array_equal(np.concatenate(train[300:]), stream_sprites(0, "train", 2, 100))


def test_sprites_continue_from_clip_to_clip():
    clips = clips_of("validation", 200)
    continued = 0
    for before, after in pairwise(clips):
        both = before["drawn"][-1] & after["drawn"][0]
        moved = np.linalg.norm(centres(after[0]) - centres(before[-1]), axis=-1)[both]
        assert np.abs(moved - 5.3).max(initial=0) <= 1.5
        continued += both.sum()
    assert continued > 300


def test_a_clip_is_the_same_whichever_was_made_before():
    for split, index in (("test", 37), ("validation", 3), ("train", 149), ("train", 150)):
        alone = clip_sprites(0, split, index).copy()
        _stream.cache_clear()
        clip_sprites(0, split, index + 300)
        assert np.array_equal(clip_sprites(0, split, index), alone)


def test_seeds_splits_and_streams_differ():
    made = [
        stream_sprites(seed, split, stream, 200).tobytes()
        for seed in (0, 1)
        for split in ("train", "validation", "test")
        for stream in (0, 1)
    ]
    assert len(set(made)) == len(made)
    assert stream_sprites(1, "test", 0, 200).tobytes() in made


def test_a_place_holds_two_sprites_in_one_clip_only_rarely():
    clips = clips_of("test", 1000)
    sprites = [len(set(clip["birth"][clip["drawn"][:, p], p])) for clip in clips for p in range(3)]
    assert max(sprites) == 2
    assert np.mean(np.array(sprites) == 2) == pytest.approx(0.046, abs=0.015)
    scored = [len(set(clip["birth"][2:][clip["drawn"][2:, p], p])) for clip in clips for p in range(3)]
    assert max(scored) == 1  # the eight frames that the benchmark scores


# The store


def content(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_store_has_clips_ids_and_sprites_of_each_split(tmp_path):
    counts = {"train": 4, "validation": 2, "test": 3}
    generate(SpritesMotConfig(), counts, tmp_path / "w", workers=1)
    videos = vonet.data.open(tmp_path / "w")
    assert videos.splits == counts
    for split in counts:
        clips = clips_of(split, counts[split])
        for video, sprites in zip(videos.in_split(split), clips, strict=True):
            frames, ids = draw(sprites, 64)
            assert np.array_equal(video.frames, frames)
            assert np.array_equal(video.ids, ids)
            assert np.array_equal(video.annotations["sprites"], sprites)
    assert [video.name for video in videos.in_split("test")] == [f"spmot-test-{i:06d}" for i in range(3)]


def test_workers_do_not_change_a_store_and_a_store_grows(tmp_path):
    generate(SpritesMotConfig(size=32), {"train": 2}, tmp_path / "1", workers=1)
    generate(SpritesMotConfig(size=32), {"train": 6}, tmp_path / "1", workers=1)
    generate(SpritesMotConfig(size=32), {"train": 6}, tmp_path / "2", workers=2)
    assert content(tmp_path / "1") == content(tmp_path / "2")
    assert json.loads((tmp_path / "1/index.json").read_text())["made_by"]["world"] == "spmot"
    with pytest.raises(BadInput, match="holds other videos: seed 0 instead of 1"):
        generate(SpritesMotConfig(size=32, seed=1), {"train": 6}, tmp_path / "1", workers=1)


def test_a_preview_shows_clips_with_sprites():
    videos = preview(SpritesMotConfig(), 4)
    assert [video.size for video in videos] == [(64, 64)] * 4
    assert all((video.ids > 0).any() for video in videos[1:])


def test_unknown_sizes_and_seeds_are_refused():
    with pytest.raises(BadInput, match=r"size is 100; it must be one of 32, 64, 128"):
        SpritesMotConfig(size=100)
    with pytest.raises(BadInput, match="seed is -1; it must be 0 or more"):
        SpritesMotConfig(seed=-1)


# The command


def test_the_command_writes_a_store_and_a_preview(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    counts = ["--train", "2", "--validation", "0", "--test", "1"]
    cli.main(["generate", "spmot", *counts, "--size", "32", "--seed", "4", "--workers", "1"])
    assert "worlds/spmot-32 is ready" in capsys.readouterr().out
    videos = vonet.data.open(tmp_path / "worlds/spmot-32")
    assert videos.splits == {"train": 2, "test": 1}
    assert np.array_equal(videos[0].ids, draw(clip_sprites(4, "train", 0), 32)[1])
    cli.main(["generate", "spmot", "--preview", "sprites.png"])
    assert (tmp_path / "sprites.png").stat().st_size > 1000


def test_numbers_of_clips_are_those_of_the_original_by_default(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr("vonet.data.generate.generate", lambda config, counts, out, workers: asked.update(counts))
    cli.main(["generate", "spmot", "--out", str(tmp_path), "--validation", "5"])
    assert asked == {"train": 9600, "validation": 5, "test": 1000}


@pytest.mark.parametrize("option", ["--frames 24", "--objects 1 2"])
def test_options_of_the_other_worlds_are_refused(option, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["generate", "spmot", *option.split()])
    assert left.value.code == 2
    assert "have 10 frames and 0 to 3 objects: omit --frames and --objects." in capsys.readouterr().err
