"""The token decoder: what may know of what."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from tests import plain
from tests.reduced import reduced
from vonet.model.decoder import TokenDecoder
from vonet.model.vonet import VONetConfig


@pytest.fixture
def decoder() -> TokenDecoder:
    config = reduced(VONetConfig())
    decoder = TokenDecoder(config.decoder, config.slot_dim, config.size).eval()
    with torch.no_grad():
        decoder.head.weight *= 3  # else the most likely token is nearly always the same
    return decoder


def test_the_head_starts_as_the_authors_layer():
    """1/√192 = 0.0722, by fan-in alone; Xavier's rule, which STEVE has here, would give 0.0216."""
    torch.manual_seed(0)
    config = reduced(VONetConfig()).decoder
    config = replace(
        config,
        transformer=replace(config.transformer, width=192, heads=4),
        dvae=replace(config.dvae, vocabulary=4096),
    )
    assert TokenDecoder(config, 10, (16, 16)).head.weight.std().item() == pytest.approx(0.0722, rel=0.01)


def test_the_decoder_is_causal(decoder):
    """Another token at position j changes the logits after j and no others. (Not a constant shift: the first norm
    erases it, and the test would be blind.)"""
    tokens, latents = torch.randint(24, (2, decoder.dvae.tokens)), torch.randn(2, 4, 10)
    before = decoder.predict(tokens, latents)
    for j in (0, 17, decoder.dvae.tokens - 2):
        changed = tokens.clone()
        changed[:, j] = (changed[:, j] + 1) % 24
        after = decoder.predict(changed, latents)
        assert torch.equal(before[:, : j + 1], after[:, : j + 1])
        assert (before[:, j + 1] != after[:, j + 1]).any()


def test_the_transformer_is_causal_for_any_perturbation(decoder):
    x, memory = torch.randn(2, 20, 16), torch.randn(2, 4, 16)
    perturbed = x.clone()
    perturbed[:, 9] += torch.randn(16)
    before, after = decoder.transformer(x, memory), decoder.transformer(perturbed, memory)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_the_first_token_depends_on_slots_alone_and_slots_matter(decoder):
    tokens = torch.randint(24, (2, decoder.dvae.tokens))
    one, other = torch.randn(2, 4, 10), torch.randn(2, 4, 10)
    assert torch.equal(decoder.predict(tokens, one)[:, 0], decoder.predict(torch.randint_like(tokens, 24), one)[:, 0])
    assert not torch.allclose(decoder.predict(tokens, one), decoder.predict(tokens, other))


def test_the_order_of_slots_does_not_matter(decoder):
    tokens, latents = torch.randint(24, (2, decoder.dvae.tokens)), torch.randn(2, 4, 10)
    torch.testing.assert_close(
        decoder.predict(tokens, latents), decoder.predict(tokens, latents[:, [2, 0, 3, 1]]), atol=1e-5, rtol=1e-4
    )


def test_cached_generation_equals_uncached_token_for_token(decoder):
    decoder.double()
    latents = torch.randn(3, 4, 10, dtype=torch.float64)
    with torch.no_grad():
        cached, uncached = decoder.generate(latents), plain.generate(decoder, latents, decoder.dvae.tokens)
    assert torch.equal(cached, uncached)
    assert cached.unique().numel() > 3  # a real sequence, not one token over and over
    assert not torch.equal(cached[0], cached[1])


def test_teacher_forcing_predicts_what_generation_chooses(decoder):
    latents = torch.randn(2, 4, 10)
    tokens = decoder.generate(latents)
    assert torch.equal(decoder.predict(tokens, latents).argmax(-1), tokens)


def test_losses_are_sums_over_tokens_and_pixels(decoder):
    frames, latents = torch.rand(2, 3, 32, 32), torch.randn(2, 4, 10)
    losses = decoder(frames, latents, torch.zeros(2, 4, 16, 16), 0)
    soft = decoder.dvae.soft_tokens(decoder.dvae.logits(frames), 0)
    tokens = soft.argmax(-1)
    picked = decoder.predict(tokens, latents).log_softmax(-1).gather(-1, tokens[..., None])
    torch.testing.assert_close(losses["tokens"], -picked.sum((1, 2)))
    torch.testing.assert_close(
        losses["pixels"], F.mse_loss(decoder.dvae.decode_soft(soft), frames, reduction="none").sum((1, 2, 3))
    )


def test_the_two_systems_share_no_gradient(decoder):
    decoder.train()
    latents = torch.randn(2, 4, 10, requires_grad=True)
    losses = decoder(torch.rand(2, 3, 32, 32), latents, torch.zeros(2, 4, 16, 16), 0)
    of_dvae = list(decoder.dvae.parameters())
    rest = decoder.parameter_groups()["decoder"]
    assert len(of_dvae) + len(rest) == len(list(decoder.parameters()))
    of_tokens = torch.autograd.grad(losses["tokens"].sum(), [*of_dvae, latents], allow_unused=True, retain_graph=True)
    assert all(g is None for g in of_tokens[:-1])
    assert of_tokens[-1].abs().sum() > 0
    of_pixels = torch.autograd.grad(losses["pixels"].sum(), [*rest, latents, *of_dvae], allow_unused=True)
    assert all(g is None for g in of_pixels[: len(rest) + 1])
    assert all(g is not None for g in of_pixels[len(rest) + 1 :])


def test_embeddings_of_tokens_that_never_occur_get_no_gradient(decoder):
    tokens = torch.randint(5, (2, decoder.dvae.tokens))
    F.cross_entropy(decoder.predict(tokens, torch.randn(2, 4, 10)).flatten(0, 1), tokens.flatten()).backward()
    touched = decoder.embedding.weight.grad.abs().sum(-1) > 0
    assert touched.tolist() == [True] * 5 + [False] * 19
