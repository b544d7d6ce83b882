"""Slot attention, and the vectors it looks at."""

import pytest
import torch
import torch.nn.functional as F

from tests import plain
from vonet.blocks.frame_vectors import (
    ConvStackConfig,
    FrameVectors,
    ResNet,
    ResNetConfig,
    centred_grid,
    four_sided_grid,
)
from vonet.blocks.slot_attention import SlotAttention, SlotAttentionConfig
from vonet.errors import BadInput

ONCE, TWICE = SlotAttentionConfig(), SlotAttentionConfig(iterations=2, hidden=7)


@pytest.fixture(params=[ONCE, TWICE, SlotAttentionConfig(iterations=3)], ids=["once", "twice", "thrice"])
def attention(request) -> SlotAttention:
    made = SlotAttention(request.param, vector_dim=12, slot_dim=8)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_it_equals_its_plain_form(attention, dtype, tolerance):
    """Values and every gradient."""
    attention = attention.to(dtype)
    vectors, slots = torch.randn(2, 20, 12, dtype=dtype), torch.randn(2, 5, 8, dtype=dtype)
    results = []
    for form in (lambda v, s: attention(attention.prepare(v), s), lambda v, s: plain.slot_attention(attention, v, s)):
        v, s = vectors.clone().requires_grad_(), slots.clone().requires_grad_()
        after, masks = form(v, s)
        masks = masks.exp() if not results else masks
        gradients = torch.autograd.grad((after * torch.arange(8)).sum(), [v, s, *attention.parameters()])
        results.append([after, masks, *gradients])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance * 10, rtol=tolerance * 10)


def test_slots_share_each_vector(attention):
    slots, log_attention = attention(attention.prepare(torch.randn(2, 20, 12)), torch.randn(2, 5, 8))
    torch.testing.assert_close(log_attention.exp().sum(1), torch.ones(2, 20))
    assert slots.shape == (2, 5, 8)


def test_slots_have_no_order(attention):
    prepared, slots = attention.prepare(torch.randn(2, 20, 12)), torch.randn(2, 5, 8)
    order = torch.tensor([3, 0, 4, 1, 2])
    for before, after in zip(attention(prepared, slots), attention(prepared, slots[:, order]), strict=True):
        torch.testing.assert_close(before[:, order], after)


def test_vectors_have_no_order(attention):
    prepared, slots, order = attention.prepare(torch.randn(2, 20, 12)), torch.randn(2, 5, 8), torch.randperm(20)
    torch.testing.assert_close(attention(prepared, slots)[0], attention(prepared[:, order], slots)[0])


def test_a_slot_that_is_alone_takes_everything(attention):
    _, log_attention = attention(attention.prepare(torch.randn(2, 20, 12)), torch.randn(2, 1, 8))
    assert (log_attention == 0).all()


def test_a_slot_that_takes_nothing_stays_finite(attention):
    """Its rival wins every vector by far; it then gets the mean of all."""
    with torch.no_grad():
        attention.query.weight.mul_(1e4)
    slots, _ = attention(attention.prepare(torch.randn(1, 20, 12)), torch.randn(1, 2, 8))
    assert slots.isfinite().all()


def test_equal_slots_stay_equal(attention):
    slots = torch.randn(2, 1, 8).expand(-1, 3, -1)
    after, _ = attention(attention.prepare(torch.randn(2, 20, 12)), slots)
    torch.testing.assert_close(after[:, :1].expand(-1, 3, -1), after)


def test_an_mlp_between_one_iteration_is_refused():
    with pytest.raises(BadInput, match="needs two or more iterations"):
        SlotAttentionConfig(iterations=1, hidden=8)
    with pytest.raises(BadInput, match="at least 1"):
        SlotAttentionConfig(iterations=0)


# ---- what it looks at ------------------------------------------------------------------------------------------------

SMALL_RESNET = ResNetConfig(channels=(4, 8, 8, 12), groups=2)
SMALL_STACK = ConvStackConfig(channels=(4, 4, 6), strides=(2, 1, 1))


def test_each_residual_block_begins_as_its_shortcut():
    x = torch.rand(2, 3, 16, 16)
    root, norm, *blocks = ResNet(SMALL_RESNET)
    x = norm(root(x))
    for block in blocks:
        kept = x[:, :, :: block.stride, :: block.stride]
        x = block(x)
        torch.testing.assert_close(x, F.relu(block.shortcut(kept)))


@pytest.mark.parametrize(("config", "cells"), [(SMALL_RESNET, (4, 2)), (SMALL_STACK, (16, 8))])
def test_vectors_know_their_frame_and_their_place_and_no_other_frame(config, cells):
    made = FrameVectors(config, 10, centred_grid, (32, 16))
    assert made.cells == cells
    frames = torch.rand(2, 3, 32, 16)
    vectors = made(frames)
    assert vectors.shape == (2, cells[0] * cells[1], made.width)
    torch.testing.assert_close(made(frames[1:]), vectors[1:])
    blank = made(torch.zeros(1, 3, 32, 16))[0]
    middle = blank.view(*cells, -1)[cells[0] // 2]
    assert not torch.allclose(middle[0], middle[-1])
    with pytest.raises(BadInput, match="cannot be reduced"):
        FrameVectors(config, 10, centred_grid, (30, 15))


def test_places_are_counted_as_each_method_does():
    grid = centred_grid(3, 5)
    assert grid[0, 0].tolist() == [-1, -1]
    assert grid[1, 4].tolist() == [0, 1]
    grid = four_sided_grid(2, 4)
    assert grid[0, 0].tolist() == [0.125, 0.25, 0.875, 0.75]
    torch.testing.assert_close(grid[..., :2] + grid[..., 2:], torch.ones(2, 4, 2))


def test_layers_and_strides_must_agree():
    with pytest.raises(BadInput, match="give one for each layer"):
        ConvStackConfig(channels=(4, 4), strides=(1,))
    with pytest.raises(BadInput, match="in 3 groups"):
        ResNetConfig(groups=3)
    with pytest.raises(BadInput, match="odd"):
        ConvStackConfig(kernel=4)
