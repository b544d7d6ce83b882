"""STEVE by itself; what it shares with SAVi is in test_recurrent_slots.py, and with VONet in test_decoder.py."""

import math
from dataclasses import replace

import pytest
import torch

from tests import plain
from tests.baselines.overfitting import overfit, three_clips
from tests.reduced import random_clip, reduced
from vonet import experiments
from vonet.baselines.steve import STEVE, STEVEConfig
from vonet.blocks.dvae import DVAEConfig
from vonet.blocks.frame_vectors import ConvStackConfig
from vonet.blocks.slot_attention import SlotAttentionConfig


def count(parameters) -> int:
    return sum(p.numel() for p in parameters)


@pytest.fixture
def model() -> STEVE:
    made = STEVE(reduced(STEVEConfig())).eval()
    with torch.no_grad():
        made.decoder.head.weight *= 3  # else the most likely token is nearly always the same
    return made


def test_parameter_counts_are_the_authors():
    """But for a row of positions that nobody reads."""
    model = STEVE(STEVEConfig())
    groups = {name: count(group) for name, group in model.parameter_groups().items()}
    assert groups == {"encoder": 734_016, "decoder": 6_505_728 - 192, "dvae": 680_515}
    assert count(model.vectors.backbone.parameters()) == 517_184
    assert count(model.decoder.transformer.blocks[0].parameters()) == 591_936
    assert count(model.parameters()) == sum(groups.values()) == 7_920_259 - 192
    assert count(STEVE(STEVEConfig(slot_dim=192)).parameters()) == 8_668_803 - 192
    assert (model.cells, model.decoder.dvae.tokens) == ((64, 64), 1024)


def test_the_parameter_count_of_the_small_setting():
    config = experiments.get("steve-laptop-a").model
    four_blocks = type(config.transformer)(width=64, blocks=4)
    tokens = DVAEConfig(vocabulary=512, width=64, fine_layers=7)
    small = STEVEConfig(
        size=(64, 64),
        backbone=ConvStackConfig(channels=(32, 32, 32, 64), kernel=5),
        attention=config.attention,
        dvae=tokens,
        transformer=four_blocks,
    )
    assert count(STEVE(small).parameters()) == 787_331 - 64


@pytest.mark.parametrize("level", "abcde")
def test_the_settings_are_the_paper_s(level):
    experiment = experiments.get(f"steve-movi-{level}")
    model, training = experiment.model, experiment.training
    assert (model.slots, model.slot_dim) == (16 if level in "de" else 11, 64)
    assert model.attention == SlotAttentionConfig(iterations=2, hidden=192)
    assert (training.batch, training.segment, training.replay) == (24, 3, None)
    assert (training.optimizer.largest, training.optimizer.eps) == (0.05, 1e-8)
    assert {weight(0) for weight in training.weights.values()} == {1.0}
    groups = training.optimizer.groups
    assert all(group.clip is None for group in groups.values())
    encoder, decoder = groups["encoder"].learning_rate, groups["decoder"].learning_rate
    values = [encoder(u) for u in (0, 29_999, 200_000)]
    assert values == pytest.approx([3.333e-9, 9.20e-5, 5.74e-5], rel=1e-3)
    assert decoder(12_345) == pytest.approx(3 * encoder(12_345))
    assert {groups["dvae"].learning_rate(u) for u in (0, 10**6)} == {3e-4}
    temperature = model.dvae.temperature
    assert [temperature(u) for u in (0, 15_000, 30_000, 200_000)] == pytest.approx([1, 0.55, 0.1, 0.1])


@torch.no_grad()
def test_masks_are_what_the_last_iteration_looked_at(model):
    frame, state = torch.rand(2, 3, 32, 32), model.initial_state(2)
    output, _ = model.step(frame, state)
    _, attention = plain.slot_attention(model.attention, model.vectors(frame), state.slots)
    torch.testing.assert_close(output.log_masks.exp().flatten(2), attention, atol=1e-5, rtol=1e-4)
    repeated = output.log_masks.exp().repeat_interleave(2, -1).repeat_interleave(2, -2)
    torch.testing.assert_close(output.masks, repeated)


@torch.no_grad()
def test_the_decoder_is_causal_and_its_first_token_depends_on_slots_alone(model):
    tokens, slots = torch.randint(24, (2, model.decoder.dvae.tokens)), torch.randn(2, 4, 8)
    before = model.decoder.predict(tokens, slots)
    for j in (0, 17, model.decoder.dvae.tokens - 2):
        changed = tokens.clone()
        changed[:, j] = (changed[:, j] + 1) % 24
        after = model.decoder.predict(changed, slots)
        assert torch.equal(before[:, : j + 1], after[:, : j + 1])
        assert (before[:, j + 1] != after[:, j + 1]).any()
    other = model.decoder.predict(torch.randint_like(tokens, 24), slots)
    assert torch.equal(before[:, 0], other[:, 0])


@torch.no_grad()
def test_prediction_and_cached_generation_equal_the_plain_forms(model):
    model.double()
    tokens, slots = torch.randint(24, (3, model.decoder.dvae.tokens)), torch.randn(3, 4, 8, dtype=torch.float64)
    ours, theirs = model.decoder.predict(tokens, slots), plain.predict(model.decoder, tokens[:, :-1], slots)
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)
    cached = model.decoder.generate(slots)
    assert torch.equal(cached, plain.generate(model.decoder, slots, model.decoder.dvae.tokens))
    assert cached.unique().numel() > 3


@torch.no_grad()
def test_without_its_projection_no_slot_matters(model):
    tokens = torch.randint(24, (1, model.decoder.dvae.tokens))
    one, other = (model.decoder.predict(tokens, torch.randn(1, 4, 8)) for _ in range(2))
    assert not torch.allclose(one, other)
    model.decoder.memory.weight.zero_()
    one, other = (model.decoder.predict(tokens, torch.randn(1, 4, 8)) for _ in range(2))
    assert torch.equal(one, other)


def test_the_two_systems_share_no_gradient(model):
    losses = model.train()(random_clip(2, 2), model.initial_state(2)).losses
    groups = model.parameter_groups()
    others = [*groups["encoder"], *groups["decoder"]]
    tokens, pixels = losses["tokens"].sum(), losses["pixels"].sum()
    assert all(g is None for g in torch.autograd.grad(tokens, groups["dvae"], allow_unused=True, retain_graph=True))
    assert all(g is None for g in torch.autograd.grad(pixels, others, allow_unused=True, retain_graph=True))
    assert all(g is not None for g in torch.autograd.grad(tokens, others, retain_graph=True))
    assert all(g is not None for g in torch.autograd.grad(pixels, groups["dvae"]))


def test_tokens_are_a_draw_of_their_own(model):
    """Other tokens than those of the draw that becomes pixels, but in evaluation the same."""
    clip, state, surprise = random_clip(1, 1), model.initial_state(1), {}
    decoder, dvae = model.decoder, model.decoder.dvae
    soft_tokens, seen = dvae.soft_tokens, {}
    decoder.surprise = lambda tokens, slots: seen.update(hard=tokens) or torch.zeros(1)
    dvae.soft_tokens = lambda logits, update: seen.setdefault("soft", soft_tokens(logits, update))
    for mode in (True, False):
        seen.clear()
        model.train(mode)(clip, state)
        surprise[mode] = (seen["hard"] != seen["soft"].argmax(-1)).float().mean().item()
    assert surprise[False] == 0
    assert surprise[True] > 0.3


def test_the_token_loss_starts_at_chance():
    """Σ over tokens of ln V, plus a little for the spread of untrained logits. Tokens are drawn: the likeliest ones of
    an untrained dVAE are only a few."""
    config = experiments.get("steve-laptop-a").model
    model = STEVE(config)
    with torch.no_grad():
        loss = model(random_clip(1, 2, 64)).losses["tokens"].mean().item()
    tokens, vocabulary, width = 256, config.dvae.vocabulary, config.transformer.width
    assert loss == pytest.approx(tokens * (math.log(vocabulary) + width / (width + vocabulary)), rel=0.04)


def test_only_tokens_that_occur_and_positions_that_are_read_learn():
    model = STEVE(reduced(STEVEConfig()))
    model.decoder.dvae.draw_tokens = lambda logits: torch.randint(5, logits.shape[:2])
    model(random_clip(1, 2)).losses["tokens"].sum().backward()
    touched = model.decoder.embedding.weight.grad.abs().sum(-1) > 0
    assert touched.tolist() == [True] * 5 + [False] * 19
    assert (model.decoder.positions.grad.abs().sum(-1) > 0).all()


def test_three_clips_are_learned_by_heart_and_by_their_slots():
    """The tokens become likely, and less so again if each clip is told with the slots of another. The dVAE, which takes
    longest, is given beforehand: its tokens mean little, but it is sure of them."""
    config = reduced(experiments.get("steve-laptop-a").model)
    model = STEVE(replace(config, backbone=replace(config.backbone, kernel=5)))
    clip, dvae = three_clips(), model.decoder.dvae.requires_grad_(False)
    dvae.to_logits.weight *= 100
    seen = overfit(model, clip, {"tokens": 0.1, "pixels": 0.0}, steps=100, rate=5e-3)
    assert seen[-1]["tokens"] < 0.1 * seen[0]["tokens"]
    model.eval()
    with torch.no_grad():
        slots = model.unroll(clip, model.initial_state(3, generator=torch.Generator().manual_seed(0))).slots
        tokens = dvae.draw_tokens(dvae.logits(clip.frames.flatten(0, 1)))
        right, wrong = (model.decoder.surprise(tokens, s.flatten(0, 1)).mean() for s in (slots, slots.roll(1, dims=0)))
    assert wrong > 1.3 * right


def test_the_dvae_learns_three_clips_too():
    """Its pictures are nearer than the best single colour of each frame. By itself, for it takes longest."""
    torch.manual_seed(0)
    config = reduced(experiments.get("steve-laptop-a").model)
    dvae = STEVE(replace(config, dvae=replace(config.dvae, width=48))).decoder.dvae.train()
    frames = three_clips().frames.flatten(0, 1)
    adam = torch.optim.Adam(dvae.parameters(), 1e-3)
    for update in range(500):
        dvae.pixel_error(frames, dvae.soft_tokens(dvae.logits(frames), update)).mean().backward()
        adam.step()
        adam.zero_grad()
    with torch.no_grad():
        learned = dvae.eval().pixel_error(frames, dvae.soft_tokens(dvae.logits(frames), 500)).mean()
    plain = (frames - frames.mean((-2, -1), keepdim=True)).square().sum((1, 2, 3)).mean()
    assert learned < 0.6 * plain
