"""The decoder in which a slot says where it is, its plain form, and the two masks that teach each other."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vonet.errors import BadInput
from vonet.experiments.closeup import closeup_model
from vonet.interface import Clip
from vonet.schedule import Schedule, constant
from vonet.variants import cell_painter
from vonet.variants.cell_painter import paint_cells, paint_plainly
from vonet.variants.object_decoder import (
    AlignmentConfig,
    AreaPriceConfig,
    ObjectDecoder,
    ObjectDecoderConfig,
    PicturePositionsConfig,
    SlotPositions,
    SlotPositionsConfig,
    SpreadConfig,
    grid,
    middle_and_extent,
    waves,
)
from vonet.variants.slot_colours import CorrectionConfig, PaintedColoursConfig

POSITIONS = [PicturePositionsConfig(), SlotPositionsConfig()]
SIZE, CELLS = (16, 24), (8, 12)


def decoder(positions, **options) -> ObjectDecoder:
    torch.manual_seed(0)
    config = ObjectDecoderConfig(hidden=(12, 10), positions=positions, alignment=AlignmentConfig(), **options)
    return ObjectDecoder(config, 6, SIZE).double()


def inputs():
    torch.manual_seed(1)
    frames, latents = torch.rand(2, 3, *SIZE), torch.randn(2, 4, 6)
    log_masks = (3 * torch.randn(2, 4, *CELLS)).log_softmax(1)
    return frames.double(), latents.double(), log_masks.double()


def plain_positions(part, log_masks):
    """The position features of every cell, through one layer, and those as seen from each slot through another."""
    cells, shape = grid(*SIZE).double(), (*SIZE, part.down.shape[-1])
    features = torch.stack([part.down[:, None].expand(shape), part.right[None].expand(shape)], dim=-1).flatten(-2)
    torch.testing.assert_close(features.flatten(0, 1), waves(cells, 3), atol=1e-6, rtol=0)
    found = part.linear(features.flatten(0, 1)).expand(*log_masks.shape[:2], -1, -1)
    if isinstance(part, SlotPositions):
        middle, extent = middle_and_extent(log_masks.exp(), part.smallest)
        seen = ((cells - middle.unsqueeze(2)) / extent.unsqueeze(2)).clamp(-part.reach, part.reach)
        own = torch.cat([waves(seen / part.reach, part.own_frequencies), torch.exp(-0.5 * seen.square())], dim=-1)
        found = found + part.own(own) + part.place(torch.cat([middle, extent], dim=-1)).unsqueeze(2)
    return found


def plain(decoder, frames, latents, log_masks):
    """One cell of one slot at a time: position and latent in one vector, through one layer after the other."""
    b, k, _ = latents.shape
    positions = plain_positions(decoder.positions, log_masks)
    painted = torch.zeros(b, k, positions.shape[2], 4, dtype=latents.dtype)
    weight = torch.cat([decoder.latent.weight, torch.eye(positions.shape[-1])], dim=1)
    for i in range(b):
        for j in range(k):
            for cell in range(positions.shape[2]):
                x = F.relu(weight @ torch.cat([latents[i, j], positions[i, j, cell]]))
                for layer in decoder.layers:
                    x = F.relu(layer(x))
                painted[i, j, cell] = decoder.output(x)
    alphas = painted[..., 3].softmax(1)
    picture = (alphas[..., None] * painted[..., :3]).sum(1)
    target = frames.flatten(2).mT
    return (picture - target).square().sum(2) / (2 * decoder.sigma**2), alphas


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_factored_form_is_the_plain_one(positions):
    part, (frames, latents, log_masks) = decoder(positions), inputs()
    error, alphas = plain(part, frames, latents, log_masks)
    torch.testing.assert_close(part.log_alphas(latents, log_masks).exp().flatten(2), alphas, atol=1e-10, rtol=1e-10)
    part.eval()
    losses = part(frames, latents, log_masks, 0)
    torch.testing.assert_close(losses["reconstruction"], error.sum(1) / 4, atol=1e-10, rtol=1e-10)
    part.train()
    lattices = [error.unflatten(1, SIZE)[:, i::2, j::2].sum((1, 2)) for i in (0, 1) for j in (0, 1)]
    drawn = set()
    for _ in range(20):
        found = part(frames, latents, log_masks, 0)["reconstruction"]
        drawn |= {i for i, lattice in enumerate(lattices) if torch.allclose(found, lattice, atol=1e-10, rtol=1e-10)}
    assert drawn == {0, 1, 2, 3}


@pytest.mark.parametrize(("kind", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("maps", [3, 100])
@pytest.mark.parametrize("largest_kept", [0, cell_painter.LARGEST_KEPT])
def test_the_gradients_are_those_of_the_plain_layers(kind, bound, maps, largest_kept, monkeypatch):
    """In one part, or in several: 100 maps are more cells than are painted at once. Layers kept or computed again."""
    monkeypatch.setattr(cell_painter, "LARGEST_KEPT", largest_kept)
    torch.manual_seed(0)
    rows, columns = (torch.randn(maps, side, 12, dtype=kind, requires_grad=True) for side in (10, 14))
    layers = [nn.Linear(12, 9).to(kind), nn.Linear(9, 4).to(kind)]
    inputs = [rows, columns, *(p for layer in layers for p in layer.parameters())]
    painted, expected = paint_cells(rows, columns, layers), paint_plainly(rows, columns, layers)
    torch.testing.assert_close(painted, expected, atol=bound, rtol=bound)
    weights = torch.randn_like(painted) / painted.numel()
    found = torch.autograd.grad((painted * weights).sum(), inputs)
    for ours, plain_one in zip(found, torch.autograd.grad((expected * weights).sum(), inputs), strict=True):
        torch.testing.assert_close(ours, plain_one, atol=bound, rtol=bound)


def test_masks_do_not_enter_the_picture():
    """As in the paper: they decide only what a slot sees."""
    part, (_, latents, log_masks) = decoder(PicturePositionsConfig()), inputs()
    assert torch.equal(part.picture(latents, log_masks), part.picture(latents, log_masks.flip(1)))


def test_a_slot_paints_from_the_middle_of_what_it_sees():
    """A thing that is seen a cell further down is the same thing: its own position is the same there."""
    seen = torch.full((1, 2, 16, 16), -20.0)
    seen[0, 1], seen[0, 0, 4:8, 5:9] = 0.0, 20.0
    first, extent = middle_and_extent(seen.log_softmax(1).exp(), 0.1)
    moved, same = middle_and_extent(seen.roll(1, 2).log_softmax(1).exp(), 0.1)
    torch.testing.assert_close(moved[0, 0] - first[0, 0], torch.tensor([2 / 16, 0.0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(same[0, 0], extent[0, 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(first[0, 0], torch.tensor([12 / 16 - 1, 14 / 16 - 1]), atol=1e-5, rtol=0)


def test_the_picture_reaches_from_minus_one_to_one():
    cells = grid(2, 4)
    assert cells.tolist()[0] == [-0.5, -0.75]
    assert cells.tolist()[-1] == [0.5, 0.75]
    assert waves(cells, 3).shape == (8, 2 + 3 * 4)


@pytest.mark.parametrize("positions", POSITIONS)
def test_with_the_spread_of_the_colours_each_slot_answers_for_itself(positions):
    """Error of the picture and spread add up to the error of each slot's own colour, weighted by its share."""
    part, (frames, latents, log_masks) = decoder(positions, spread=SpreadConfig()).eval(), inputs()
    losses = part(frames, latents, log_masks, 0)
    colours, log_alphas = part.paint(latents, log_masks)
    alone = (colours - frames.unsqueeze(1)).square().sum(2) / (2 * part.sigma**2)
    expected = (log_alphas.exp() * alone).sum((1, 2, 3)) / 4
    torch.testing.assert_close(losses["reconstruction"] + losses["spread"], expected, atol=1e-10, rtol=1e-10)


def test_the_picture_does_not_tell_alpha_from_colour_and_the_spread_does():
    """A quarter of the share and four times the contrast paint the same pixels."""
    background, foreground = torch.zeros(1, 3, 2, 2), torch.full((1, 3, 2, 2), 0.2)
    pictures, spreads = [], []
    for share in (1.0, 0.25):
        colours = torch.stack([background, foreground / share], dim=1)
        alphas = torch.tensor([1 - share + 1e-9, share])[None, :, None, None].expand(1, 2, 2, 2)
        pictures.append((alphas.unsqueeze(2) * colours).sum(1))
        spreads.append(SpreadConfig()(colours, alphas.log(), pictures[-1]).item())
    torch.testing.assert_close(*pictures)
    assert spreads[0] == pytest.approx(0, abs=1e-6)
    assert spreads[1] == pytest.approx(0.25 * 0.75 * 0.8**2 * 3 * 4)


def test_the_two_masks_teach_each_other_and_each_is_fixed_while_it_teaches():
    log_masks, align = inputs()[2], AlignmentConfig()
    attention = log_masks.clone().requires_grad_()
    alphas = log_masks.flip(1).clone().requires_grad_()
    seen = torch.rand(2, 4, 3, *CELLS).double(), torch.rand(2, 3, *CELLS).double()
    align(attention, alphas, *seen, 0).sum().backward()
    torch.testing.assert_close(attention.grad, -alphas.detach().exp())
    torch.testing.assert_close(alphas.grad, -attention.detach().exp())
    assert torch.equal(align(log_masks, log_masks, *seen, 0), torch.zeros(2).double())
    assert (align(log_masks, log_masks.flip(1), *seen, 0) > 0).all()


def test_the_attention_learns_from_the_alphas_after_a_look_at_the_pixels():
    """Bayes' rule, pixel by pixel: r_k = alpha_k N(x; c_k, sigma²) / Σ_j alpha_j N(x; c_j, sigma²). The decoder still
    learns from the attention alone, and the colours from neither."""
    log_masks, sigma = inputs()[2], 0.3
    attention, alphas = log_masks.clone().requires_grad_(), log_masks.flip(1).clone().requires_grad_()
    colours, pixels = torch.rand(2, 4, 3, *CELLS).double().requires_grad_(), torch.rand(2, 3, *CELLS).double()
    align = AlignmentConfig(sigma=Schedule(((0, 9.0), (10, sigma))))
    align(attention, alphas, colours, pixels, 10).sum().backward()
    likelihood = torch.distributions.Normal(colours.detach(), sigma).log_prob(pixels[:, None]).sum(2).exp()
    joint = alphas.detach().exp() * likelihood
    torch.testing.assert_close(attention.grad, -joint / joint.sum(1, keepdim=True))
    torch.testing.assert_close(alphas.grad, -attention.detach().exp())
    assert colours.grad is None


def test_the_attention_learns_corrected_masks():
    """The decoder still learns from the attention as it is, and nothing else gets a gradient."""
    log_masks, correction = inputs()[2], CorrectionConfig()
    attention, alphas = log_masks.clone().requires_grad_(), log_masks.flip(1).clone().requires_grad_()
    colours, pixels = torch.rand(2, 4, 3, *CELLS).double().requires_grad_(), torch.rand(2, 3, *CELLS).double()
    AlignmentConfig(correction=correction)(attention, alphas, colours, pixels, 0).sum().backward()
    expected = correction(log_masks, log_masks.flip(1), colours.detach(), pixels).exp()
    assert (expected.argmax(1) != log_masks.argmax(1)).any()
    torch.testing.assert_close(attention.grad, -expected)
    torch.testing.assert_close(alphas.grad, -attention.detach().exp())
    assert colours.grad is None


def test_an_alignment_has_one_target():
    with pytest.raises(BadInput, match="give one of them"):
        AlignmentConfig(sigma=constant(0.1), correction=CorrectionConfig())


def test_a_pixel_of_the_outline_goes_to_the_slot_whose_colour_it_has():
    """Two slots that the decoder deems equally likely; the pixels are red on the left and green on the right."""
    even = torch.full((1, 2, 1, 2), 0.5).log()
    red, green = torch.tensor([0.8, 0.1, 0.1]), torch.tensor([0.1, 0.8, 0.1])
    pixels = torch.stack([red, green], dim=-1)[None, :, None]  # 1 3 1 2
    colours = torch.stack([red, green])[None, :, :, None, None].expand(1, 2, 3, 1, 2)
    attention = even.clone().requires_grad_()
    AlignmentConfig(sigma=constant(0.2))(attention, even, colours, pixels, 0).sum().backward()
    assert (-attention.grad[0, :, 0]).round(decimals=2).tolist() == [[1, 0], [0, 1]]


def test_the_decoder_corrects_enlarged_masks_by_what_it_paints():
    correction = CorrectionConfig(colours=PaintedColoursConfig(sigma=0.3))
    part, (frames, latents, log_masks) = decoder(POSITIONS[1], correction=correction), inputs()
    enlarged = F.interpolate(log_masks, size=SIZE, mode="bilinear", align_corners=False).log_softmax(1)
    colours, log_alphas = part.paint(latents, log_masks)
    found = part.corrected(frames, latents, log_masks)
    torch.testing.assert_close(found, correction(enlarged, log_alphas, colours, frames))
    assert (found.argmax(1) != enlarged.argmax(1)).any()


def test_a_model_corrects_the_masks_of_its_output_and_nothing_else():
    """Slots, losses and pictures are those of the model without correction, frame by frame and as a clip."""
    plain_model = replace(closeup_model(), slots=3).build().eval()
    decoder = replace(closeup_model().decoder, correction=CorrectionConfig())
    model = replace(closeup_model(), slots=3, decoder=decoder).build().eval()
    model.load_state_dict(plain_model.state_dict())
    clip, state = Clip(torch.rand(2, 3, 3, 32, 32)), model.initial_state(2, generator=torch.Generator().manual_seed(0))
    output, without = model(clip, state), plain_model(clip, state)
    assert plain_model.cells == (16, 16)
    assert model.cells == output.log_masks.shape[-2:] == (32, 32)
    assert torch.equal(output.log_attention, without.log_masks)
    assert torch.equal(output.slots, without.slots)
    assert output.losses.keys() == without.losses.keys()
    assert all(torch.equal(output.losses[name], loss) for name, loss in without.losses.items())
    for source in ("posterior", "prior"):
        assert torch.equal(model.pictures(output, source), plain_model.pictures(without, source))
    for t, frame in enumerate(clip.frames.unbind(1)):
        step, state = model.step(frame, state)
        torch.testing.assert_close(step.log_masks, output.log_masks[:, t])
        latents = model.posterior(step.slots).mean
        torch.testing.assert_close(step.log_masks, model.decoder.corrected(frame, latents, step.log_attention))
    with torch.no_grad():
        watched = model.unroll(clip, model.initial_state(2, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(watched.log_masks, output.log_masks)
    assert model.train().unroll(clip).log_attention is None


def test_without_alignment_there_is_no_such_loss():
    config = ObjectDecoderConfig(hidden=(4,))
    frames, latents, log_masks = (x.float() for x in inputs())
    assert tuple(ObjectDecoder(config, 6, SIZE)(frames, latents, log_masks, 0)) == config.losses == ("reconstruction",)
    aligned = ObjectDecoderConfig(hidden=(4,), alignment=AlignmentConfig())
    assert tuple(ObjectDecoder(aligned, 6, SIZE)(frames, latents, log_masks, 0)) == aligned.losses


def test_the_price_of_area_prefers_one_slot_to_two():
    price = AreaPriceConfig(half=0.1)
    shares = {"one": (0.8, 0.2, 0.0), "shared": (0.4, 0.4, 0.2), "cut": (0.8, 0.1, 0.1), "nearly": (0.79, 0.2, 0.01)}
    cost = {}
    for name, split in shares.items():
        cost[name] = price((torch.tensor(split)[None, :, None].expand(1, 3, 50) + 1e-9).log()).item()
    assert cost["one"] == pytest.approx(math.log(9) + math.log(3), abs=1e-4)
    assert cost["one"] < cost["nearly"] < cost["cut"] < cost["shared"]
    assert "area" in ObjectDecoderConfig(price=price).losses
    with pytest.raises(BadInput, match="more than 0"):
        AreaPriceConfig(half=0.0)


def test_pictures_begin_grey():
    part, (_, latents, log_masks) = decoder(PicturePositionsConfig()), inputs()
    assert (part.picture(latents, log_masks) - 0.5).abs().max() < 0.35


@pytest.mark.parametrize(("options", "words"), [({"hidden": ()}, "above 0"), ({"sigma": 0.0}, "more than 0")])
def test_impossible_painters_are_refused(options, words):
    with pytest.raises(BadInput, match=words):
        ObjectDecoderConfig(**options)


def test_frames_that_cannot_be_reduced_are_refused():
    with pytest.raises(BadInput, match="multiple of 2"):
        ObjectDecoder(ObjectDecoderConfig(), 6, (15, 16))
