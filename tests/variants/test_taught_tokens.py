"""The token decoder with an object decoder beside it: each is what it is alone, and they share the latents only."""

from dataclasses import replace

import pytest
import torch

from tests.reduced import reduced
from vonet.errors import BadInput
from vonet.experiments.closeup import closeup_model
from vonet.model.decoder import TokenDecoder, TokenDecoderConfig
from vonet.schedule import Schedule
from vonet.variants.slot_colours import CorrectionConfig
from vonet.variants.taught_tokens import TaughtTokensConfig


def taught_model():
    closeup = closeup_model()
    tokens = TokenDecoderConfig(even_vocabulary=True)
    torch.manual_seed(0)
    return reduced(replace(closeup, decoder=TaughtTokensConfig(tokens=tokens, objects=closeup.decoder))).build()


def inputs(model):
    torch.manual_seed(1)
    latents = torch.randn(2, 4, model.slot_dim, requires_grad=True)
    return torch.rand(2, 3, *model.size), latents, torch.randn(2, 4, *model.cells).log_softmax(1)


def test_the_losses_are_those_of_the_two_decoders():
    model = taught_model().eval()
    decoder, given = model.decoder, inputs(model)
    found, tokens = decoder(*given, 0), decoder.tokens(*given, 0)
    objects = super(type(decoder), decoder).forward(*given, 0)
    assert set(found) == {"tokens", "pixels", "vocabulary", "reconstruction", "alignment", "spread", "area"}
    for name, loss in {**tokens, **objects}.items():
        assert torch.equal(found[name], loss), name


def test_a_teacher_that_stops_does_not_correct_masks():
    objects = replace(closeup_model().decoder, correction=CorrectionConfig())
    with pytest.raises(BadInput, match="must be None, because the object decoder stops learning"):
        TaughtTokensConfig(objects=objects)


def test_without_the_teacher_its_parameters_have_no_gradient_and_the_latents_do():
    """The paper's loss alone: what the object decoder would say does not matter."""
    model = taught_model()
    frames, latents, log_masks = inputs(model)
    losses = model.decoder(frames, latents, log_masks, 0)
    (losses["tokens"] + losses["pixels"] + losses["vocabulary"]).sum().backward()
    groups = model.parameter_groups()
    assert all(p.grad is None for p in groups["objects"])
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in groups["decoder"])
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in groups["dvae"])
    assert latents.grad.abs().sum() > 0


def test_the_vocabulary_loss_reaches_the_dvae_alone():
    model = taught_model()
    frames, latents, log_masks = inputs(model)
    model.decoder(frames, latents, log_masks, 0)["vocabulary"].sum().backward()
    touched = {name for name, group in model.parameter_groups().items() if any(p.grad is not None for p in group)}
    assert touched == {"dvae"}
    assert latents.grad is None


def test_every_parameter_is_in_one_group():
    model = taught_model()
    grouped = [id(p) for group in model.parameter_groups().values() for p in group]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


def test_the_weights_of_a_model_with_an_object_decoder_fit():
    closeup = reduced(closeup_model()).build()
    model = taught_model()
    missing, unexpected = model.load_state_dict(closeup.state_dict(), strict=False)
    assert not unexpected
    assert all(name.startswith("decoder.tokens.") for name in missing)


def test_the_picture_is_painted_by_tokens():
    model = taught_model().eval()
    _, latents, log_masks = inputs(model)
    with torch.no_grad():
        expected = model.decoder.tokens.picture(latents)
        assert torch.equal(model.decoder.picture(latents, log_masks), expected)


def seen_tokens(decoder: TokenDecoder, hidden: float, frames: int = 400) -> torch.Tensor:
    """Which of the earlier tokens the transformer gets to see, `frames N−1`, as zeros and ones."""
    seen = []
    handle = decoder.input_norm.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    with torch.no_grad():
        decoder.embedding.weight.fill_(1.0)
        decoder.positions.zero_()
        tokens = torch.zeros(frames, decoder.positions.shape[1], dtype=torch.long)
        decoder.predict(tokens, torch.randn(frames, 3, 10), hidden)
    handle.remove()
    assert torch.equal(seen[0][:, 0], decoder.begin[0].expand(frames, -1))  # the beginning is never hidden
    return seen[0][:, 1:, 0]


def test_the_asked_share_of_the_earlier_tokens_is_hidden():
    torch.manual_seed(0)
    decoder = taught_model().decoder.tokens.eval()
    assert seen_tokens(decoder, 0.0).min() == 1
    for hidden in (0.1, 0.5):
        seen = seen_tokens(decoder, hidden)
        assert set(seen.unique().tolist()) == {0.0, 1.0}
        shares = 1 - seen.mean(-1)
        assert abs(shares.mean().item() - hidden) < 0.04
        assert shares.std().item() > hidden / 3  # a share of its own for each frame
        assert shares.max().item() < 2 * hidden + 0.15


def test_tokens_are_hidden_in_training_as_long_as_the_schedule_says():
    model = taught_model()
    tokens = replace(reduced_tokens(), hidden_tokens=Schedule(((0, 0.5), (10, 0.0))))
    decoder = tokens.build(model.slot_dim, model.size)
    asked = []
    predict = decoder.predict
    decoder.predict = lambda tokens, latents, hidden=0.0: asked.append(hidden) or predict(tokens, latents, hidden)
    given = inputs(model)
    for update, training in ((0, True), (5, True), (10, True), (0, False)):
        decoder.train(training)(*given, update)
    assert asked == [0.5, 0.25, 0.0, 0.0]


def reduced_tokens() -> TokenDecoderConfig:
    return reduced(replace(closeup_model(), decoder=TokenDecoderConfig())).decoder


def test_at_most_half_of_the_tokens_can_be_hidden_in_the_mean():
    with pytest.raises(BadInput, match=r"hidden_tokens has the shares \[0.6, 0.0\]; they must be from 0 to 0.5"):
        TokenDecoderConfig(hidden_tokens=Schedule(((0, 0.6), (10, 0.0))))
