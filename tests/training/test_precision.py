"""Training in bfloat16: how far it is from float32, what stays in float32, and who decides."""

from dataclasses import replace

import pytest
import torch

from tests.reduced import reduced_experiment
from vonet import experiments
from vonet.blocks.autoregressive import causal_attention
from vonet.blocks.conv import ResidualBlock, upsampled_conv
from vonet.blocks.norm import InstanceNorm
from vonet.errors import BadInput
from vonet.interface import Clip, total
from vonet.training import precision
from vonet.training.distributed import Processes
from vonet.training.run import _check_same
from vonet.variants.cell_painter import paint_cells

BOUND = 0.02
"""Of bfloat16, which has 8 significant bits: the error's norm as a share of the value's norm."""


def in_both(function, *inputs):
    """What a function gives in float32 and under autocast, and its gradients."""
    found = []
    for half in (False, True):
        given = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in inputs]
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            y = function(*given)
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        found.append([y, *torch.autograd.grad((y.float() * weights).sum(), given)])
    return zip(*found, strict=True)


def error(found, true):
    return ((found.float() - true).norm() / true.norm()).item()


def attend(q, k, v):
    return causal_attention(q, k, v, 0.0)


def attend_with_dropout(q, k, v):
    return causal_attention(q, k, v, 0.2)


@pytest.mark.parametrize("attention", [attend, attend_with_dropout])
def test_causal_attention_is_within_its_bound(attention):
    def halves(q, k, v):
        return attention(*(x.bfloat16() if torch.is_autocast_enabled("cpu") else x for x in (q, k, v)))

    torch.manual_seed(0)
    for true, found in in_both(halves, *torch.randn(3, 2, 2, 150, 8)):
        assert error(found, true) < BOUND


def test_upsampled_convolutions_are_within_their_bound():
    torch.manual_seed(0)
    small = torch.randn(2, 6, 7, 5).contiguous(memory_format=torch.channels_last)
    for true, found in in_both(upsampled_conv, small, torch.randn(4, 6, 3, 3), torch.randn(4)):
        assert error(found, true) < BOUND


def test_painted_cells_are_within_their_bound():
    """A ReLU whose input is nearly zero may open in one and stay shut in the other, so the gradients differ more."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(12, 16), torch.nn.Linear(16, 4)]
    painted, *gradients = in_both(lambda r, c: paint_cells(r, c, layers), torch.randn(3, 5, 12), torch.randn(3, 6, 12))
    assert painted[1].dtype == torch.float32
    assert error(painted[1], painted[0]) < BOUND
    assert all(error(found, true) < 5 * BOUND for true, found in gradients)


@pytest.mark.parametrize("name", ["vonet-sprites", "vonet-closeup", "vonet-movi-a"])
def test_the_losses_are_float32_and_close(name):
    """Over all parameters, the gradient points the same way as in float32."""
    model = reduced_experiment(experiments.get(name)).build_model(seed=0)
    torch.manual_seed(0)
    clip, losses, gradients = Clip(torch.rand(2, 2, 3, 32, 32)), [], []
    state = model.initial_state(2)
    for half in (False, True):
        torch.manual_seed(0)
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            output = model(clip, state.detach())
        total(output.losses, dict.fromkeys(output.losses, 1.0)).backward()
        assert all(loss.dtype == torch.float32 for loss in output.losses.values())
        assert output.log_masks.dtype == output.slots.dtype == torch.float32
        losses.append(torch.stack([loss.mean() for loss in output.losses.values()]).detach())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(losses[1], losses[0], rtol=BOUND, atol=BOUND)
    assert torch.cosine_similarity(*gradients, dim=0) > 0.98


def test_norms_are_computed_in_float32():
    x = torch.randn(2, 8, 4, 4).bfloat16().contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        for norm in (InstanceNorm(8), ResidualBlock(8, 8, 1, 4).norm1):
            y = norm(x)
            assert y.dtype == torch.float32
            torch.testing.assert_close(y, norm.to(torch.float64)(x.double()).float(), atol=1e-5, rtol=1e-5)


def sprites():
    made = reduced_experiment(experiments.get("vonet-sprites"))
    return made.build_model(seed=0), replace(made.training, batch=2, segment=2)


@pytest.mark.parametrize(("gain", "chosen"), [(1.5, "bfloat16"), (1.05, "float32")])
def test_auto_takes_what_is_faster(monkeypatch, gain, chosen):
    monkeypatch.setattr(precision, "can_compute_bfloat16", lambda device: True)
    monkeypatch.setattr(precision, "gain", lambda *given: gain)
    assert precision.choose("auto", *sprites(), Processes()) == chosen


def test_a_machine_without_bfloat16_refuses_it_in_one_sentence(monkeypatch):
    monkeypatch.setattr(precision, "can_compute_bfloat16", lambda device: False)
    with pytest.raises(BadInput, match="has no instructions for bfloat16: use --precision float32"):
        precision.choose("bfloat16", *sprites(), Processes())
    assert precision.choose("auto", *sprites(), Processes()) == "float32"
    assert precision.choose("float32", *sprites(), Processes()) == "float32"


def test_the_probe_leaves_no_trace():
    model, config = sprites()
    before, drawn = [p.detach().clone() for p in model.parameters()], torch.get_rng_state()
    assert precision.gain(model, config, "cpu", rounds=1) > 0
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(p, q) and p.grad is None for p, q in zip(model.parameters(), before, strict=True))


def test_a_resumed_run_keeps_its_precision(tmp_path):
    about = {"experiment": {}, "precision": "float32"}
    _check_same({"experiment": {}}, about, tmp_path)  # a checkpoint from before there was a choice
    with pytest.raises(BadInput, match="precision was 'bfloat16' and is 'float32'"):
        _check_same({"experiment": {}, "precision": "bfloat16"}, about, tmp_path)
