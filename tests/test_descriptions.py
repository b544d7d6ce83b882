"""Descriptions in weights, and evaluations: whatever they say, it is read or refused with a sentence."""

import json
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

import pytest

from tests.reduced import reduced_experiment
from vonet import experiments
from vonet.errors import BadInput
from vonet.experiments import registry, weights
from vonet.experiments.descriptions import described, fits, read_experiment
from vonet.experiments.overrides import overridden
from vonet.experiments.trial import trial_model
from vonet.schedule import Schedule, constant
from vonet.writing import save_tensors

SCHEDULE = {"part": "Schedule", "points": [[0, 1.0]]}


def small():
    return reduced_experiment(experiments.get("vonet-sprites"))


@pytest.mark.parametrize("name", experiments.names())
def test_every_experiment_fits_its_own_type_hints_and_builds_without_memory(name):
    experiment = experiments.get(name)
    assert read_experiment(json.dumps(described(experiment))) == experiment
    model = trial_model(experiment)
    assert all(parameter.device.type == "meta" for parameter in model.parameters())


@pytest.mark.parametrize(
    ("value", "hint", "wanted"),
    [
        (1, int, True),
        (True, int, False),
        (1.0, int, False),
        (10**10, int, False),
        (1, float, True),
        (float("nan"), float, False),
        (float("inf"), float, False),
        (None, float | None, True),
        ((1, 2), tuple[int, int], True),
        ((1, 2, 3), tuple[int, int], False),
        ((1, 2, 3), tuple[int, ...], True),
        ((1, "x"), tuple[int, ...], False),
        ([1], list[int], True),
        ({"a": 1.5}, Mapping[str, float], True),
        ({"a": None}, Mapping[str, float], False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        (constant(1.0), Schedule, True),
        (5, Schedule, False),
        (object(), Any, True),
    ],
)
def test_values_and_hints(value, hint, wanted):
    assert fits(value, hint) is wanted


@pytest.mark.parametrize(
    ("part", "option", "value", "sentence"),
    [
        ("model", "backbone", None, "VONetConfig.backbone is None; it must be of type BackboneConfig"),
        ("model", "decoder", SCHEDULE, "VONetConfig.decoder is {'part': 'Schedule'}; it must be of type DecoderConfig"),
        ("model", "slot_dim", 1.5, "VONetConfig.slot_dim is 1.5; it must be of type int"),
        ("model", "size", [32, 32, 32], "VONetConfig.size is"),
        ("training", "batch", float("inf"), "TrainingConfig.batch is inf; it must be of type int"),
        ("training", "weights", {"kl": 1}, "TrainingConfig.weights is"),
        ("training", "optimizer", [], "TrainingConfig.optimizer is"),
    ],
)
def test_options_of_another_type_are_refused(part, option, value, sentence):
    text = described(small())
    text[part][option] = value
    with pytest.raises(BadInput, match=sentence.replace("(", r"\(")):
        read_experiment(json.dumps(text))


def test_former_names_are_refused_with_the_present_ones():
    text = described(experiments.get("mixture"))
    text["model"]["toll"] = text["model"].pop("min_component_mass")
    with pytest.raises(BadInput, match=r"MixtureConfig with the unknown options toll \(now min_component_mass\)"):
        read_experiment(json.dumps(text))
    with pytest.raises(BadInput, match=r"'model\.toll': 'toll' is now 'min_component_mass'"):
        overridden(experiments.get("mixture"), ["model.toll=2.0"])
    text["model"] = {"part": "FineBackboneConfig"}
    with pytest.raises(BadInput, match="the part FineBackboneConfig, which is now DetailedBackboneConfig"):
        read_experiment(json.dumps(text))


def test_former_names_are_gone_and_the_present_ones_exist():
    for former, now in registry.RENAMED_PARTS.items():
        assert registry.part(former) is None
        assert registry.part(now) is not None
    for name, options in registry.RENAMED_OPTIONS.items():
        present = {option.name for option in fields(registry.part(name))}
        assert set(options.values()) <= present
        assert not present & set(options)


def test_texts_that_are_no_descriptions():
    for text in ("", "5", "[]", "{}", '{"part": "Schedule", "points": []}', '{"part": ["x"]}', "[" * 200_000):
        with pytest.raises(BadInput):
            read_experiment(text)
    with pytest.raises(BadInput, match="describes no experiment"):
        read_experiment(json.dumps(SCHEDULE))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"slot_dim": 10**9}, "is refused: the model cannot be built"),
        ({"slot_dim": 10**4}, "is refused: the model has .* numbers, more than the limit"),
        ({"slot_dim": 20}, "do not fit the model that it describes"),
        ({"slots": 10**8}, "100000000 slots were asked for"),
        ({"size": [10**6, 10**6]}, r"size is \(1000000, 1000000\)"),
        (
            {
                "initial_slots": {
                    "part": "InitialSlotsConfig",
                    "transformer": {"part": "SlotTransformerConfig", "blocks": 10**8},
                }
            },
            "more than .* parameters",
        ),
    ],
)
def test_a_description_cannot_take_all_memory_or_time(tmp_path, changes, sentence):
    experiment = small()
    weights.save(tmp_path, experiment.build_model(seed=0), experiment)
    tensors = {name: tensor.clone() for name, tensor in experiment.build_model(seed=0).state_dict().items()}
    text = described(experiment)
    text["model"] |= changes
    save_tensors(tmp_path / weights.WEIGHTS, tensors, {"vonet": json.dumps(text), "format": weights.FORMAT})
    begun = time.process_time()
    with pytest.raises(BadInput, match=sentence):
        weights.load(tmp_path)
    assert time.process_time() - begun < 20


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("model.backbone.groups=0", "model.backbone.groups=0 is refused by BackboneConfig"),
        ("model.backbone.channels=[]", "0 blocks have 2 strides"),
        ("model.backbone.feature_dim=-1", "is refused: the model cannot be built"),
        ("model.slot_dim=1000000000", "is refused: the model cannot be built"),
        ("model.slot_dim=20000", "is refused: the model has .* numbers"),
        ("model.slots=100000000", "100000000 slots"),
        ("model.size=[1, 2, 3]", "size is .*; it must be"),
        ("model.size=[true, {}]", "size is .*; it must be"),
        ("training.optimizer.eps=1e999", "training.optimizer.eps is inf; it must be of type float"),
    ],
)
def test_changes_that_make_no_model_are_refused(change, sentence):
    with pytest.raises(BadInput, match=sentence):
        overridden(small(), [change])
