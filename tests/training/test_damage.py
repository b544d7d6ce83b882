"""Logs and checkpoints that are damaged get a sentence, or are read as far as they are whole."""

import json

import pytest

from tests.training.test_loop import training
from vonet.errors import BadInput
from vonet.figures.curves import write_curves
from vonet.figures.page import _curves
from vonet.training import checkpoint, log
from vonet.training.distributed import Processes

GOOD = [{"update": update, "seconds": 1.0, "losses": {"kl": 2.0}} for update in (1, 2)]
BAD = [
    "1",
    "null",
    "[]",
    '"x"',
    "{}",
    '{"update": 1}',
    '{"update": "1", "seconds": 1}',
    "[" * 100_000,
    '{"upd',
    "\udcff",
]
BAD += ['{"update": 1, "seconds": 1, "losses": 5}', '{"update": 1, "seconds": 1, "losses": {"kl": "x"}}']
BAD += [
    '{"update": 1, "seconds": 1, "losses": {"other": 1}}',
    '{"update": -1, "seconds": 1}',
    '{"update": true, "seconds": 1}',
]
BAD += ['{"update": 1, "seconds": 1, "losses": {"kl": 1e999}}', '{"update": 1, "seconds": null}']


def test_lines_that_are_no_entries_are_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = [json.dumps(GOOD[0]), *BAD, json.dumps(GOOD[1])]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    assert log.read(path) == GOOD
    assert log.Log(path, 1).entries == GOOD[:1]
    assert log.read(path) == GOOD[:1]
    write_curves(tmp_path / "curves.png", log.read(path), {})
    _curves(log.read(path))


def test_a_log_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(BadInput, match=r"log.jsonl cannot be read"):
        log.read(tmp_path / "log.jsonl")
    assert log.read(tmp_path / "none") == []


@pytest.mark.parametrize(
    "text",
    ["5", "null", "[]", "{}", '{"update": "1"}', '{"update": 1, "processes": 1, "experiment": 5}', "[" * 100_000],
)
def test_a_description_of_a_checkpoint_that_is_none(tmp_path, text):
    path = tmp_path / "checkpoints" / "latest.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(BadInput, match=r"latest.json is damaged: delete it"):
        checkpoint.latest(tmp_path)


def test_a_checkpoint_of_other_values_does_not_fit(tmp_path):
    run = training()
    run.step()
    tensors, facts = run.remember()
    checkpoint.save(tmp_path, (tensors, {**facts, "seconds": 2.5}), {}, Processes())
    assert checkpoint.recall(training(), checkpoint.load(tmp_path, Processes()), tmp_path) == 2.5
    segments = facts["segments"]
    for broken in (
        {**facts, "update": "1", "seconds": 1},
        {**facts, "update": -1, "seconds": 1},
        {**facts, "seconds": "x"},
        {**facts, "seconds": float("inf")},
        {**facts, "seconds": 1, "segments": {**segments, "watched_frames": None}},
        {**facts, "seconds": 1, "segments": {**segments, "to_watch": [99]}},
        {**facts, "seconds": 1, "segments": {**segments, "random": "5"}},
        {"update": 1},
    ):
        with pytest.raises(BadInput, match=r"does not fit this training .* cannot be resumed from"):
            checkpoint.recall(training(), [(tensors, broken)], tmp_path)
    fewer = {name: tensor for name, tensor in tensors.items() if not name.startswith("model/backbone")}
    with pytest.raises(BadInput, match="does not fit this training") as refused:
        checkpoint.recall(training(), [(fewer, {**facts, "seconds": 1})], tmp_path)
    assert "\n" not in str(refused.value)
    frames = tensors["segments/_frames"] + 1000
    for changed in ({"segments/_frames": frames}, {"segments/_videos": -frames}, {"other/x": frames}):
        with pytest.raises(BadInput, match="does not fit this training"):
            checkpoint.recall(training(), [({**tensors, **changed}, {**facts, "seconds": 1})], tmp_path)
