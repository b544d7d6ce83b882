"""SAVi by itself; what it shares with STEVE is in test_recurrent_slots.py."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from tests.baselines.overfitting import overfit, three_clips
from tests.reduced import random_clip, reduced
from vonet import experiments
from vonet.baselines.savi import SAVi, SAViConfig
from vonet.blocks.broadcast import SpatialBroadcastConfig
from vonet.blocks.slot_attention import SlotAttentionConfig
from vonet.errors import BadInput


def count(module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts_are_the_authors():
    """Torch's GRU has a second bias, of 256."""
    model = SAVi(SAViConfig())
    assert count(model.vectors.backbone) == 4_898_112
    assert count(model.vectors.place) == 1_536
    assert count(model.vectors.norm) + count(model.vectors.mlp) == 67_136
    assert count(model.attention.gru) == 98_816 + 256
    assert count(model.attention) - count(model.attention.gru) == 148_736
    assert count(model.predictor) == 132_480
    assert count(model.decoder) == 512_900
    assert count(model) == 5_859_972
    assert model.vectors.cells == (16, 16)
    assert model.cells == (128, 128)


def test_at_first_only_the_closing_norm_of_a_residual_branch_learns():
    """Its scale of zero lets no gradient pass."""
    model = SAVi(reduced(SAViConfig())).train()
    model(random_clip(2, 2), model.initial_state(2)).losses["reconstruction"].mean().backward()
    for block in list(model.vectors.backbone)[2:]:
        inside = (*block.conv1.parameters(), *block.norm1.parameters(), *block.conv2.parameters())
        assert not any(p.grad.any() for p in inside)
        assert block.norm2.weight.grad.any()


@pytest.mark.parametrize("level", "abcde")
def test_the_settings_are_the_paper_s(level):
    experiment = experiments.get(f"savi-movi-{level}")
    training = experiment.training
    sizes = (experiment.model.slots, training.segment, training.batch)
    assert sizes == ((16, 3, 32) if level in "de" else (11, 6, 32))
    assert experiment.model.attention == SlotAttentionConfig(iterations=1, hidden=None)
    group = training.optimizer.groups["model"]
    rate = group.learning_rate
    assert [rate(u) for u in (0, 1_250, 2_500, 51_250, 100_000)] == pytest.approx([0, 1e-4, 2e-4, 1e-4, 0])
    assert (group.clip, training.optimizer.eps, training.replay) == (0.05, 1e-8, None)
    assert training.weights["reconstruction"](0) == training.segment  # a sum over the segment's frames


@pytest.mark.parametrize("name", ["savi-movi-a", "savi-laptop-a"])
@torch.no_grad()
def test_the_loss_is_the_squared_error_of_the_blend(name):
    model = SAVi(reduced(experiments.get(name).model)).eval()
    clip, state = random_clip(2, 2), model.initial_state(2)
    output = model(clip, state)
    for t in range(2):
        maps = model.decoder(output.slots[:, t])
        masks = maps[:, :, 3:].softmax(1)
        target = F.avg_pool2d(clip.frames[:, t], model.reduction)
        error = (target - (masks * maps[:, :, :3]).sum(1)).square().sum((1, 2, 3))
        torch.testing.assert_close(output.losses["reconstruction"][:, t], error, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(output.log_masks[:, t].exp(), masks[:, :, 0])


@torch.no_grad()
def test_slots_are_painted_each_by_itself():
    model = SAVi(reduced(SAViConfig())).eval()
    slots = torch.randn(1, 3, 12)
    colours, _ = model.decode(slots)
    changed = slots.clone()
    changed[:, 1] += 1
    other, _ = model.decode(changed)
    assert torch.equal(colours[:, [0, 2]], other[:, [0, 2]])
    assert not torch.equal(colours[:, 1], other[:, 1])


def test_three_clips_are_learned_by_heart():
    config = reduced(experiments.get("savi-laptop-a").model)
    config = replace(config, slot_dim=16, decoder=replace(config.decoder, channels=(12, 12, 12)))
    clip = three_clips()
    seen = overfit(SAVi(config), clip, {"reconstruction": 1.0}, steps=130, rate=5e-3)
    small = F.avg_pool2d(clip.frames.flatten(0, 1), 2)
    of_one_colour = (small - small.mean((2, 3), keepdim=True)).square().sum((1, 2, 3)).mean().item()
    assert seen[-1]["reconstruction"] < 0.4 * of_one_colour < seen[0]["reconstruction"]


def test_contradictions_are_refused():
    with pytest.raises(BadInput, match="reduced 3 times"):
        SAViConfig(reduction=3)
    with pytest.raises(BadInput, match="odd number"):
        SpatialBroadcastConfig(kernel=4)
    with pytest.raises(BadInput, match="0 slots"):
        SAViConfig(slots=0)
    with pytest.raises(BadInput, match="cannot be shared by 3 heads"):
        SAViConfig(predictor_heads=3)
