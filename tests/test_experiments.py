"""Every shipped experiment is complete, buildable, and says what it means."""

import json
import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import vonet
from tests.reduced import random_clip, reduced, reduced_experiment
from tests.test_model import WITHOUT_GRADIENT
from vonet import experiments
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.experiments import registry
from vonet.interface import total
from vonet.model.attention import DotAttentionConfig
from vonet.model.sequential_vae import BalancedKLConfig, PlainKLConfig
from vonet.model.vonet import VONet, VONetConfig
from vonet.schedule import constant
from vonet.training.config import TrainingConfig
from vonet.training.loop import Training
from vonet.training.optimizer import GroupConfig, Optimizer, OptimizerConfig
from vonet.training.replay import ReplayConfig
from vonet.training.segments import Footage
from vonet.variants.broadcast_decoder import BroadcastDecoderConfig
from vonet.variants.mask_pooling import MaskPoolingConfig
from vonet.variants.reduced_unet import ReducedUNetAttentionConfig
from vonet.variants.scale_shift import ScaleShiftConfig

GOLDEN = Path(__file__).parent / "golden" / "vonet_step.json"


def count(module) -> int:
    return sum(p.numel() for p in module.parameters())


TRAINED = [name for name in experiments.names() if name != "mixture"]


@pytest.mark.parametrize("name", TRAINED)
def test_every_experiment_takes_a_step(name):
    experiment = reduced_experiment(experiments.get(name))
    model, training = experiment.build_model(), experiment.training
    optimizer = Optimizer(training.optimizer, model.parameter_groups())
    clip = random_clip(2, training.segment, model.size[0])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    share = 0.3 if name.startswith("vonet-closeup-tokens") else 0.75  # later its object decoder rests
    late = int(share * training.updates)  # at the beginning rates, weights and then gradients are still zero
    for update in range(late, late + 3):
        state = model.initial_state(2)
        losses = model(clip, state, update).losses
        total(losses, {loss: weight(update) for loss, weight in training.weights.items()}).backward()
        norms = optimizer.step(update)
    assert set(norms) == set(training.optimizer.groups)
    assert all(norm > 0 for norm in norms.values())
    unmoved = {name for name, p in model.named_parameters() if torch.equal(p, before[name])}
    assert unmoved <= (WITHOUT_GRADIENT[type(model.attention)] if isinstance(model, VONet) else set())


def test_the_public_surface():
    experiment = vonet.experiments.get("vonet-sprites")
    model = experiment.build_model()
    frames = torch.rand(1, 2, 3, 32, 32)
    state = model.initial_state(1, generator=torch.Generator().manual_seed(0))
    output = model(vonet.Clip(frames), state)
    assert output.masks.shape == (1, 2, 5, 32, 32)
    step, state = model.step(frames[:, 0], state)
    assert step.masks.shape == (1, 5, 32, 32)
    assert step.log_masks.shape == (1, 5, 16, 16)
    assert state.slots.shape == (1, 5, 64)
    assert issubclass(vonet.BadInput, ValueError)
    assert vonet.VONet is VONet
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = vonet.nonsense


def test_a_seed_decides_the_parameters_and_nothing_else():
    experiment = vonet.experiments.get("vonet-sprites")
    torch.manual_seed(1)
    one = experiment.build_model(seed=7)
    after_one = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after_one, torch.rand(1))
    other = experiment.build_model(seed=7)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not torch.equal(next(one.parameters()), next(experiment.build_model(seed=8).parameters()))


def test_an_unknown_experiment_is_named_and_helped():
    with pytest.raises(BadInput, match=r"perhaps you meant .*vonet-movi-a"):
        experiments.get("vonet-movia")
    with pytest.raises(BadInput, match="vonet list shows them"):
        experiments.get("zzz")


def test_every_part_is_known_by_its_name():
    """Weights are read by the kinds of parts that they name, so each kind must be in the registry."""
    kinds = set()
    for path in Path(vonet.__file__).parent.rglob("*.py"):
        room = path.relative_to(Path(vonet.__file__).parent).parts[0]
        if room in ("model", "variants", "baselines", "blocks", "training"):
            kinds |= set(re.findall(r"@dataclass\(frozen=True, kw_only=True\)\nclass (\w+Config)\b", path.read_text()))
    assert len(kinds) > 35
    assert {kind for kind in kinds if registry.part(kind) is None} == set()
    assert all(registry.part(kind).__name__ == kind for kind in kinds)
    assert registry.part("Nonsense") is None


# ---- the paper's numbers ---------------------------------------------------------------------------------------------


def test_the_paper_s_hyper_parameters():
    sizes = {"a": (11, 5, 32), "b": (11, 5, 32), "c": (11, 6, 32), "d": (16, 6, 24), "e": (16, 6, 24)}
    for level, (slots, levels, batch) in sizes.items():
        experiment = experiments.get(f"vonet-movi-{level}")
        model, training = experiment.model, experiment.training
        assert (model.slots, len(model.attention.unet.channels), training.batch) == (slots, levels, batch)
        assert (model.size, model.slot_dim, model.backbone.stride) == ((128, 128), 128, 2)
        assert model.attention.unet.channels == (32, 64, 64, 128, 128, 128)[:levels]
        assert model.attention.unet.bottleneck == (512, 512)
        assert (model.attention.transformer.blocks, model.attention.transformer.heads) == (3, 3)
        assert model.sequential_vae.prior.transformer.blocks == 2
        assert model.sequential_vae.prior.kl == BalancedKLConfig(kappa=0.7)
        assert model.enlargement == "nearest"
        assert (training.segment, training.updates) == (3, 150_000)
        assert training.replay == ReplayConfig(videos=16, length=10_000, frames_per_update=2)
        beta = training.weights["kl"]
        assert [beta(u) for u in (0, 25_000, 50_000, 150_000)] == [0, 10 / 128, 20 / 128, 20 / 128]
        groups = training.optimizer.groups
        rate = groups["encoder"].learning_rate
        assert [rate(u) for u in (0, 5_000, 100_000, 150_000)] == pytest.approx([1e-5, 1e-4, 1e-4, 1e-5])
        assert (groups["encoder"].clip, groups["decoder"].clip, groups["dvae"].clip) == (0.1, 0.1, None)
        assert (groups["decoder"].learning_rate(9), groups["dvae"].learning_rate(9)) == (3e-4, 1e-3)
        temperature = model.decoder.dvae.temperature
        assert [temperature(u) for u in (0, 5_000, 10_000)] == pytest.approx([1.0, 0.55, 0.1])


def test_ablations_replace_one_part():
    base = experiments.get("vonet-movi-c")

    def variant(label):
        return experiments.get(f"vonet-movi-c-{label}")

    def same_but(label, **parts):
        changed = variant(label)
        return replace(changed, name=base.name, summary=base.summary, paper=base.paper, **parts) == base

    assert variant("wo-unet").model.attention == DotAttentionConfig()
    assert same_but("wo-unet", model=base.model)
    for label, divisor in [("kl-20", 20), ("kl-200", 200), ("kl-20k", 20_000)]:
        weight = variant(label).training.weights["kl"]
        assert weight(60_000) == pytest.approx(20 / 128 / divisor)
        assert same_but(label, training=base.training)
    assert "kl" not in variant("wo-kld").training.weights
    assert variant("wo-kld").model.sequential_vae.prior is None
    assert variant("wo-klbal").model.sequential_vae.prior.kl == PlainKLConfig()
    assert same_but("wo-klbal", model=base.model)
    assert variant("wo-replay").training.replay is None
    assert same_but("wo-replay", training=base.training)


@pytest.mark.parametrize(("name", "start"), [("vonet-closeup", None), ("vonet-closeup-tokens", "vonet-closeup")])
def test_close_ups_without_the_u_net_keep_their_own_estimate_and_start_from_their_like(name, start):
    base, ablated = experiments.get(name), experiments.get(f"{name}-wo-unet")
    assert ablated.model == replace(base.model, attention=base.model.attention.estimate)
    assert ablated.training == base.training
    assert (base.start, ablated.start) == (start, start and f"{start}-wo-unet")
    assert experiments.get(f"{name}-wo-klbal").start == start


def test_single_images():
    experiment = experiments.get("vonet-image-movi-d")
    assert (experiment.training.segment, experiment.training.replay) == (1, None)
    assert experiment.model == experiments.get("vonet-movi-d").model


def test_parameter_counts_are_the_authors():
    """Every part exactly, but for two that docs/deviations.md explains: the U-Net's input, and the number of blocks of
    the prior (the authors' class has three by default; their configuration, as the paper, says two)."""
    model = experiments.get("vonet-movi-a").build_model()
    assert count(model.initial_slots) == 790_272
    assert count(model.context) == 65_920
    assert count(model.backbone) == 360_576
    assert count(model.attention.estimate) == count(model.slot_encoder) == 16_512
    assert count(model.attention.transformer) == 12_598_272
    assert count(model.decoder) == 7_265_027
    assert count(model.trajectory.gru) == 99_072
    assert count(model.trajectory.mlp) == 65_920
    assert count(model.trajectory.norm) == 256
    inputs_in_the_authors_unet, inputs_in_ours = 128, 128 + 2 + 128
    wider_first_layer = 9 * 32 * (inputs_in_ours - inputs_in_the_authors_unet)
    assert count(model.attention.unet) - wider_first_layer == 3_248_609
    block_of_prior = count(model.initial_slots) // 3
    assert count(model.sequential_vae) + block_of_prior == 905_856


def test_parameter_counts_of_the_shared_blocks():
    """As listed for the same U-Net with four input channels."""
    from vonet.blocks.unet import UNet, UNetConfig

    six = UNetConfig(channels=(32, 64, 64, 128, 128, 128))
    assert count(UNet(six, 4, (128, 128))) == 3_655_777
    assert count(UNet(UNetConfig(), 4, (64, 64))) == 3_212_897
    assert count(UNet(UNetConfig(channels=(32, 32, 32, 64, 64), bottleneck=(128, 128)), 4, (64, 64))) == 521_441


def test_the_token_loss_starts_at_chance():
    """ln V per token, plus one half, because untrained logits have a variance of one. Averaged over all tokens of the
    vocabulary: a random frame has few of them, so its own loss is noisy."""
    decoder = experiments.get("vonet-movi-a").build_model(seed=0).eval().decoder
    with torch.no_grad():
        logits = decoder.predict(torch.randint(4096, (1, 1024)), torch.randn(1, 11, 128))
    assert -logits.log_softmax(-1).mean().item() == pytest.approx(np.log(4096) + 0.5, rel=0.01)


# ---- configs ---------------------------------------------------------------------------------------------------------


def config_values(config):
    yield config
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from config_values(value)


@pytest.mark.parametrize("kind", ["paper", "variants"])
def test_every_option_is_read(monkeypatch, kind):
    config = reduced(VONetConfig())
    if kind == "variants":
        attention = ReducedUNetAttentionConfig(conditioning=ScaleShiftConfig())
        decoder = BroadcastDecoderConfig()
        config = reduced(replace(config, attention=attention, slot_encoder=MaskPoolingConfig(), decoder=decoder))
    parts = [c for c in config_values(config) if type(c).__module__.startswith("vonet")]
    options = {(type(c), field.name) for c in parts for field in fields(c)}
    seen = set()

    def spy(self, name):
        seen.add((type(self), name))
        return object.__getattribute__(self, name)

    for kind_of_part in {type(c) for c in parts}:
        monkeypatch.setattr(kind_of_part, "__getattribute__", spy)
    model = VONet(config)
    model(random_clip(1, 1))  # schedules and divergences are read when they are used
    assert options - seen == set()


def test_every_option_of_a_training_is_read(monkeypatch):
    """But `updates`, which the run reads and not the update."""
    made, seen = reduced_experiment(experiments.get("vonet-movi-a")), set()
    small = ReplayConfig(videos=2, length=8, frames_per_update=2, frames_before_first_update=8)
    config = replace(made.training, batch=2, replay=small)
    model = made.build_model(seed=0)
    footage = Footage([ArrayVideo("noise", np.zeros((4, 32, 32, 3), np.uint8))], (32, 32))
    parts = (TrainingConfig, OptimizerConfig, GroupConfig, ReplayConfig)

    def spy(self, name):
        seen.add((type(self), name))
        return object.__getattribute__(self, name)

    for part in parts:
        monkeypatch.setattr(part, "__getattribute__", spy)
    Training(model, config, footage, seed=0).step()
    unread = {(part, field.name) for part in parts for field in fields(part)} - seen
    assert unread == {(TrainingConfig, "updates")}


def test_the_largest_experiment_takes_a_step_at_full_size():
    """Sixteen slots, a U-Net of six levels."""
    model = experiments.get("vonet-movi-e").build_model(seed=0).eval()
    with torch.no_grad():
        output, _ = model.step(torch.rand(1, 3, 128, 128), model.initial_state(1))
    assert output.masks.shape == (1, 16, 128, 128)
    torch.testing.assert_close(output.masks.sum(1), torch.ones(1, 128, 128))
    assert count(model.attention.unet) == 3_655_777 + 9 * 32 * (258 - 4) - 2 * 512 * 1536 - 1536


def test_an_experiment_refuses_weights_that_do_not_name_its_losses():
    experiment = experiments.get("vonet-movi-a")
    weights = {"tokens": constant(1.0), "kl": constant(1.0)}
    with pytest.raises(BadInput, match=r"the weights name \['kl', 'tokens'\]"):
        replace(experiment, training=replace(experiment.training, weights=weights))


def test_an_optimizer_refuses_groups_that_are_not_the_model_s():
    group = GroupConfig(learning_rate=constant(1e-3), clip=None)
    with pytest.raises(BadInput, match=r"\['decoder', 'dvae', 'encoder'\] but the optimiser names \['all'\]"):
        Optimizer(OptimizerConfig(groups={"all": group}), VONet(reduced(VONetConfig())).parameter_groups())


def test_the_optimizer_clips_each_group_and_follows_its_schedule():
    a, b = (torch.nn.Parameter(torch.zeros(3)) for _ in range(2))
    schedule = vonet.experiments.get("vonet-movi-a").training.optimizer.groups["encoder"].learning_rate
    optimizer = Optimizer(
        OptimizerConfig(
            groups={
                "a": GroupConfig(learning_rate=schedule, clip=0.1),
                "b": GroupConfig(learning_rate=constant(1e-3), clip=None),
            }
        ),
        {"a": [a], "b": [b]},
    )
    a.grad, b.grad = torch.tensor([3.0, 0.0, 4.0]), torch.tensor([3.0, 0.0, 4.0])
    kept = a.grad, b.grad
    assert optimizer.step(2_500) == pytest.approx({"a": 5.0, "b": 5.0})
    assert kept[0].norm().item() == pytest.approx(0.1, rel=1e-4)
    assert kept[1].norm().item() == pytest.approx(5.0)
    torch.testing.assert_close(a.data, torch.tensor([-5.5e-5, 0, -5.5e-5]), atol=1e-9, rtol=1e-3)
    torch.testing.assert_close(b.data, torch.tensor([-1e-3, 0, -1e-3]), atol=1e-8, rtol=1e-3)
    assert a.grad is None


def test_the_largest_entry_of_all_gradients_together_may_be_bounded():
    """All groups shrink by the same factor; a gradient that is small enough stays as it is."""
    for size, expected in ((4.0, 0.05), (0.03, 0.03)):
        a, b = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
        group = GroupConfig(learning_rate=constant(1e-3), clip=None)
        optimizer = Optimizer(OptimizerConfig(groups={"a": group, "b": group}, largest=0.05), {"a": [a], "b": [b]})
        a.grad, b.grad = torch.tensor([size / 4, 0.0]), torch.tensor([0.0, -size])
        kept = a.grad, b.grad
        assert optimizer.step(0)["b"] == pytest.approx(size)  # as it was
        torch.testing.assert_close(torch.stack(kept), torch.tensor([[expected / 4, 0], [0, -expected]]))
    with pytest.raises(BadInput, match="largest is 0"):
        OptimizerConfig(groups={}, largest=0.0)


# ---- a golden step ---------------------------------------------------------------------------------------------------


def golden_step() -> dict[str, float]:
    """Losses and gradient norms of one seeded training step of the (reduced) paper model. Random draws in training go
    through torch's global generator, whose stream is the same on every CPU."""
    experiment = reduced_experiment(experiments.get("vonet-movi-a"))
    model = experiment.build_model(seed=0)
    torch.manual_seed(1)
    clip, state = random_clip(2, 3), model.initial_state(2)
    losses = model(clip, state, update=100).losses
    total(losses, dict.fromkeys(losses, 1.0)).backward()
    numbers = {f"loss {name}": loss.mean().item() for name, loss in losses.items()}
    for name, group in model.parameter_groups().items():
        numbers[f"gradient {name}"] = torch.stack([p.grad.norm() for p in group]).norm().item()
    return numbers


def test_golden_step():
    """Guards refactors. If a change of behaviour is meant, run `python -m tests.test_experiments` and say why."""
    assert golden_step() == pytest.approx(json.loads(GOLDEN.read_text()), rel=1e-3)


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(golden_step(), indent=2) + "\n")
