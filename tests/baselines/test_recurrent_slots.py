"""What SAVi and STEVE have in common: frames correct the slots, and the slots predict themselves."""

from dataclasses import replace

import pytest
import torch

from tests.reduced import random_clip, reduced
from vonet import experiments
from vonet.errors import BadInput
from vonet.interface import Clip, total

KINDS = ("savi-movi-a", "savi-laptop-a", "steve-movi-a")


def made(name):
    """In evaluation mode and with weights away from their symmetric start."""
    model = reduced(experiments.get(name).model).build().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model


@pytest.fixture(params=KINDS)
def model(request):
    return made(request.param)


def tensors(output):
    return output.log_masks, output.slots, output.previous_slots


@torch.no_grad()
def test_streaming_and_chunks_equal_the_whole_clip(model):
    clip, state = random_clip(2, 6), model.initial_state(2)
    whole = model.unroll(clip, state)
    streamed, chunked = [], []
    now = state
    for t in range(6):
        output, now = model.step(clip.frames[:, t], now)
        streamed.append(tensors(output))
    torch.testing.assert_close(now.slots, whole.state.slots)
    now = state
    for t in (0, 2, 4):
        output = model.unroll(Clip(clip.frames[:, t : t + 2]), now)
        now = output.state
        chunked.append(tensors(output))
    for i, whole_tensor in enumerate(tensors(whole)):
        torch.testing.assert_close(torch.stack([s[i] for s in streamed], 1), whole_tensor, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(torch.cat([c[i] for c in chunked], 1), whole_tensor, atol=1e-5, rtol=1e-4)
    called = model(clip, state)
    torch.testing.assert_close(called.log_masks, whole.log_masks, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_what_is_carried_is_predicted_from_what_is_decoded(model):
    output = model.unroll(random_clip(2, 3), model.initial_state(2))
    torch.testing.assert_close(model.predictor(output.slots[:, -1]), output.state.slots)
    torch.testing.assert_close(model.predictor(output.slots[:, 0]), output.previous_slots[:, 1])
    assert not torch.allclose(output.slots[:, -1], output.state.slots, atol=1e-2)


@torch.no_grad()
def test_the_future_changes_nothing(model):
    clip, state = random_clip(2, 4), model.initial_state(2)
    before = model.unroll(clip, state)
    clip.frames[:, 2:] = torch.rand_like(clip.frames[:, 2:])
    after = model.unroll(clip, state)
    for one, other in zip(tensors(before), tensors(after), strict=True):
        assert torch.equal(one[:, :2], other[:, :2])
        assert not torch.equal(one[:, 3], other[:, 3])


@torch.no_grad()
def test_slots_have_no_order(model):
    clip, state = random_clip(2, 3), model.initial_state(2)
    order = torch.tensor([2, 0, 3, 1])
    before = model(clip, state)
    after = model(clip, state.map(lambda x: x[:, order]))
    for one, other in zip(tensors(before), tensors(after), strict=True):
        torch.testing.assert_close(one[:, :, order], other, atol=1e-4, rtol=1e-4)
    for name, loss in before.losses.items():
        torch.testing.assert_close(loss, after.losses[name], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_equal_slots_stay_equal(model):
    """Nothing but the noise tells slots apart."""
    state = model.initial_state(2).map(lambda x: x[:, :1].expand(-1, 3, -1))
    output = model.unroll(random_clip(2, 3), state)
    torch.testing.assert_close(output.slots[:, :, :1].expand_as(output.slots), output.slots, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(output.masks, torch.full_like(output.masks, 1 / 3), atol=1e-4, rtol=0)


@torch.no_grad()
def test_a_slot_that_is_alone_takes_every_pixel(model):
    output = model.unroll(random_clip(1, 2), model.initial_state(1, slots=1))
    assert (output.masks == 1).all()


@torch.no_grad()
def test_a_video_that_begins_inside_a_clip_gets_fresh_slots(model):
    frames, state = torch.rand(2, 4, 3, 32, 32), model.initial_state(2)
    is_first = torch.zeros(2, 4, dtype=torch.bool)
    is_first[1, 2] = True
    together = model.unroll(Clip(frames, is_first), state)
    alone = model.unroll(Clip(frames[:, 2:]), model.restart(state, torch.tensor([True, True])))
    torch.testing.assert_close(together.log_masks[1, 2:], alone.log_masks[1], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(together.log_masks[0, 2:], alone.log_masks[0], atol=1e-4)


def test_fresh_slots_differ_and_a_seed_decides_them(model):
    one, other = (model.initial_state(2, generator=torch.Generator().manual_seed(s)) for s in (1, 1))
    assert torch.equal(one.slots, other.slots)
    assert not torch.equal(one.slots, model.initial_state(2).slots)
    assert not torch.equal(one.slots[0, 0], one.slots[0, 1])


@pytest.mark.parametrize("name", ["savi-movi-a", "steve-movi-a"])
def test_every_parameter_learns_from_two_frames_but_not_from_one(name):
    """With one frame nothing is predicted. What softmax ignores learns nothing: the predictor's key bias, and the bias
    of SAVi's mask logit."""
    model = made(name).train()
    for time in (1, 2):
        losses = model(random_clip(2, time), model.initial_state(2)).losses
        total(losses, dict.fromkeys(losses, 1.0)).backward()
        idle = {n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()}
        assert idle == ({n for n, _ in model.named_parameters() if n.startswith("predictor.")} if time == 1 else set())
        if time == 1:
            model.zero_grad()
    if name.startswith("savi"):
        key_bias = model.predictor.self_attn.in_proj_bias.grad.chunk(3)[1]
        assert key_bias.abs().max() < 1e-4 * model.predictor.self_attn.in_proj_bias.grad.abs().max()
        output_bias = model.decoder.output.bias.grad.abs()
        assert output_bias[3] < 1e-4 * output_bias[:3].max()


def test_wrong_states_and_frames_are_refused_with_a_sentence(model):
    frame, state = torch.rand(2, 3, 32, 32), model.initial_state(2)
    with pytest.raises(BadInput, match="built for 32x32"):
        model.step(torch.rand(2, 3, 16, 16), state)
    with pytest.raises(BadInput, match=r"start with model\.initial_state"):
        model.step(frame, model.initial_state(3))
    with pytest.raises(BadInput, match="float64"):
        model.step(frame.double(), state)
    with pytest.raises(BadInput, match="0 slots"):
        model.initial_state(1, slots=0)


@torch.no_grad()
def test_pictures_are_frames(model):
    output = model.unroll(random_clip(2, 2), model.initial_state(2))
    pictures = model.pictures(output)
    assert pictures.shape == (2, 2, 3, 32, 32)
    assert 0 <= pictures.min() <= pictures.max() <= 1
    other = replace(output, slots=output.slots.flip(0))
    torch.testing.assert_close(model.pictures(other), pictures.flip(0))
