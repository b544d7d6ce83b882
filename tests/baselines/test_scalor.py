"""SCALOR's equations and invariants."""

import math
from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.reduced import random_clip, reduced
from vonet import experiments
from vonet.baselines.scalor import scalor
from vonet.baselines.scalor.conv_lstm import ConvLSTMCell
from vonet.baselines.scalor.glimpse import GlimpseDecoder, GlimpseEncoder, crop, paste
from vonet.baselines.scalor.scalor import (
    EPS,
    SCALOR,
    Annealed,
    BoxConfig,
    Discovery,
    Objects,
    Proposals,
    SCALORConfig,
    bernoulli_divergence,
    limited,
)
from vonet.errors import BadInput
from vonet.interface import Clip
from vonet.training.optimizer import RMSpropConfig

AFTER = Annealed(temperature=0.5, presence_prior=1e-3, cut=False, hides=False)


def count(module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    return SCALOR(reduced(SCALORConfig()))


@pytest.fixture
def model(made):
    return made.eval()


@pytest.fixture
def learner(made):
    return made.train()


def boxes(count, batch=2):
    size = 0.2 + 0.3 * torch.rand(batch, count, 2)
    return torch.cat([size, torch.rand(batch, count, 2) - 0.5], dim=-1)


def followed(model, batch=2, places=3, seed=0, presence=0.9):
    """A state in the middle of a video, with an object in each place."""
    generator = torch.Generator().manual_seed(seed)
    state = model.initial_state(batch, slots=places + 1)
    drawn = {f.name: torch.randn(getattr(state, f.name).shape, generator=generator) for f in fields(Objects)}
    drawn["box"] = boxes(places, batch)
    drawn["presence"] = torch.full((batch, places, 1), presence)
    drawn["absence"] = torch.zeros(batch, places, 1)
    drawn["name"] = torch.arange(1, places + 1).expand(batch, -1).clone()
    return replace(state, **drawn, names_given=torch.full((batch,), places), seen=torch.ones(batch, dtype=torch.bool))


# ---- glimpses --------------------------------------------------------------------------------------------------------


def affine(pictures, matrix, size):
    grid = F.affine_grid(matrix, [len(pictures), pictures.shape[1], *size], align_corners=False)
    return F.grid_sample(pictures, grid, align_corners=False)


def test_crop_and_paste_are_spatial_transformers():
    pictures, where = torch.rand(2, 3, 20, 24, dtype=torch.float64), boxes(4).double().requires_grad_()
    w, h, x, y = where.flatten(0, 1).unbind(-1)
    zero = torch.zeros_like(w)
    into = torch.stack([torch.stack([w, zero, x], -1), torch.stack([zero, h, y], -1)], 1)
    back = torch.stack([torch.stack([1 / w, zero, -x / w], -1), torch.stack([zero, 1 / h, -y / h], -1)], 1)
    plain = affine(pictures.repeat_interleave(4, 0), into, (8, 8)).unflatten(0, (2, 4))
    found = crop(pictures, where, 8)
    torch.testing.assert_close(found, plain, atol=1e-10, rtol=1e-10)
    glimpses = torch.rand(2, 4, 5, 8, 8, dtype=torch.float64, requires_grad=True)
    plain = affine(glimpses.flatten(0, 1), back, (20, 24)).unflatten(0, (2, 4))
    pasted = paste(glimpses, where, (20, 24))
    torch.testing.assert_close(pasted, plain, atol=1e-7, rtol=1e-7)
    for one, other in zip(
        torch.autograd.grad(pasted.square().sum(), [glimpses, where]),
        torch.autograd.grad(plain.square().sum(), [glimpses, where]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_what_is_pasted_is_found_again():
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 16), torch.linspace(0, 1, 16), indexing="ij")
    glimpse = torch.stack([rows, columns, (rows + columns) / 2])[None, None]
    box = torch.tensor([[[0.5, 0.4, 0.1, -0.2]]])
    again = crop(paste(glimpse, box, (64, 64))[:, 0], box, 16)
    assert (again - glimpse)[..., 1:-1, 1:-1].abs().max() < 0.05
    area = paste(torch.ones(1, 1, 1, 16, 16), box, (64, 64)).sum()
    assert area.item() == pytest.approx(0.5 * 0.4 * 64 * 64, rel=0.1)


def test_boxes_keep_to_their_ranges():
    config = BoxConfig(size=0.2, size_range=0.15, ratio=1.05, ratio_range=0.45)
    width, height = config.extents(5 * torch.randn(500, 2)).unbind(-1)
    assert (((width * height).sqrt() - 0.2).abs() <= 0.15 + 1e-5).all()
    assert ((height / width - 1.05).abs() <= 0.45 + 1e-4).all()
    with pytest.raises(BadInput, match="less than the value they surround"):
        BoxConfig(size=0.1, size_range=0.1)


def test_the_conv_lstm_by_its_equations():
    cell = ConvLSTMCell(3, 4)
    nn.init.normal_(cell.peepholes)
    x, h, c = (torch.randn(2, 3, 4, 4) for _ in range(3))
    from_x, from_h = cell.of_input(x).split(3, 1), cell.of_hidden(h).split(3, 1)
    i, f, o = ((from_x[n] + from_h[n] + cell.peepholes[n] * c).sigmoid() for n in range(3))
    after = f * c + i * (from_x[3] + from_h[3]).tanh()
    hidden, memory = cell(x, h, c)
    torch.testing.assert_close(memory, after)
    torch.testing.assert_close(hidden, o * after.tanh())
    assert ConvLSTMCell(3, 4).peepholes.abs().max() == 0


# ---- propagation -----------------------------------------------------------------------------------------------------


def propagated(model, state, frame, features):
    old = Objects(**{f.name: getattr(state, f.name) for f in fields(Objects)})
    return model.propagation(old, frame, features, model.glimpse_encoder, model.glimpse, 0.5)


@torch.no_grad()
def test_objects_move_little_and_stay_about_the_frame(model):
    state = followed(model)
    state = replace(state, box=torch.cat([state.box[..., :2], 1.04 * torch.ones(2, 3, 2)], -1))
    new, kl = propagated(model, state, torch.rand(2, 3, 64, 64), torch.randn(2, 64, 4, 4))
    moved = (new.box - state.box)[..., 2:].abs()
    assert 0 < moved.max() <= 0.2 + 1e-6
    assert new.box[..., 2:].abs().max() <= 1.05
    assert all((divergence >= 0).all() for divergence in kl.values())
    assert torch.equal(new.name, state.name)


@torch.no_grad()
def test_the_order_of_objects_and_empty_places_do_not_matter(model):
    state, frame, features = followed(model), torch.rand(2, 3, 64, 64), torch.randn(2, 64, 4, 4)
    order = [2, 0, 1]
    shuffled = replace(state, **{f.name: getattr(state, f.name)[:, order] for f in fields(Objects)})
    one, other = model._step(frame, state, AFTER)[0], model._step(frame, shuffled, AFTER)[0]
    torch.testing.assert_close(one.foreground, other.foreground, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(one.kl_what, other.kl_what, atol=1e-3, rtol=1e-4)
    assert torch.equal(one.labels, other.labels)
    (new, kl), (new_shuffled, _) = (propagated(model, s, frame, features) for s in (state, shuffled))
    torch.testing.assert_close(new.what[:, order], new_shuffled.what, atol=1e-4, rtol=1e-4)
    wider = {f.name: getattr(state, f.name) for f in fields(Objects)}
    wider = {name: torch.cat([x, torch.zeros_like(x[:, :2])], dim=1) for name, x in wider.items()}
    padded, padded_kl = propagated(model, replace(state, **wider), frame, features)
    torch.testing.assert_close(padded.what[:, :3], new.what, atol=1e-4, rtol=1e-4)
    assert padded.presence[:, 3:].abs().max() == 0
    for name, divergence in kl.items():
        torch.testing.assert_close(padded_kl[name], divergence, atol=1e-3, rtol=1e-4)


def test_absence_only_grows_and_death_is_for_ever(learner, monkeypatch):
    """Objects that are hardly there fade out; their names never come back."""
    torch.manual_seed(0)
    head = learner.propagation.presence[-1]
    before = head.bias.detach().clone()
    head.bias.data.fill_(-2.2)  # tanh(−0.2): a presence of about 0.15
    try:
        state, dead, absence = learner.initial_state(2), [set(), set()], {}
        clip = random_clip(2, 8, 64)
        with torch.no_grad():
            for t in range(8):
                _, after = learner._step(clip.frames[:, t], state, AFTER)
                for b in range(2):
                    names = set(after.name[b].tolist()) - {0}
                    assert not names & dead[b]
                    dead[b] |= set(state.name[b].tolist()) - {0} - names
                    for name, gone in zip(after.name[b].tolist(), after.absence[b, :, 0].tolist(), strict=True):
                        assert name == 0 or gone >= absence.get((b, name), 0.0)
                        assert gone < scalor.LONGEST_ABSENCE
                        absence[b, name] = gone
                state = after
        assert all(dead)
    finally:
        head.bias.data.copy_(before)


# ---- discovery -------------------------------------------------------------------------------------------------------


def test_proposals_stay_near_their_cells(learner):
    proposals, _ = learner.discovery(
        torch.rand(2, 3, 64, 64),
        10 * torch.randn(2, 64, 4, 4),
        torch.zeros(2, 1, 64, 64),
        torch.zeros(2, dtype=torch.bool),
        learner.glimpse_encoder,
        learner.glimpse_decoder,
        learner.glimpse,
        AFTER,
    )
    centres = [((ix + 0.5) / 2 - 1, (iy + 0.5) / 2 - 1) for iy in range(4) for ix in range(4)]
    off = (proposals.box[..., 2:] - torch.tensor(centres)).abs()
    assert off.max() <= 2 / 4 + 1e-6
    assert ((proposals.presence > 0) & (proposals.presence <= 1)).all()


class FullMask(GlimpseDecoder):
    """Every mask fills its glimpse."""

    def __init__(self):
        nn.Module.__init__(self)

    def forward(self, what):
        return torch.zeros(*what.shape[:2], 3, 8, 8), torch.ones(*what.shape[:2], 1, 8, 8)


def test_what_lies_under_followed_objects_is_refused():
    covered = torch.zeros(1, 1, 64, 64)
    covered[..., :32] = 1.0  # the left half
    box = torch.tensor([[[0.2, 0.2, -0.5, 0.0], [0.2, 0.2, 0.5, 0.0], [0.4, 0.2, 0.0, 0.0], [0.2, 0.2, 5.0, 0.0]]])
    what = torch.zeros(1, 4, 2)
    assert Discovery.refused(FullMask(), what, box, covered).tolist() == [[True, False, True, False]]
    assert not Discovery.refused(FullMask(), what, box, torch.zeros(1, 1, 64, 64)).any()


def test_nothing_is_refused_in_a_first_frame(learner):
    for seen in (False, True):
        proposals, kl = learner.discovery(
            torch.rand(1, 3, 64, 64),
            torch.randn(1, 64, 4, 4),
            torch.ones(1, 1, 64, 64),
            torch.tensor([seen]),
            learner.glimpse_encoder,
            learner.glimpse_decoder,
            learner.glimpse,
            AFTER,
        )
        assert bool((proposals.presence == 0).any()) == seen
        assert all((divergence >= 0).all() for divergence in kl.values())


def proposals_of(presence, what_dim=8):
    n = presence.shape[1]
    return Proposals(
        torch.arange(n, dtype=torch.float32).view(1, n, 1).expand(len(presence), n, what_dim),
        torch.rand(len(presence), n, 4),
        torch.rand(len(presence), n, 1),
        presence.unsqueeze(-1),
    )


def test_the_likeliest_proposals_take_the_free_places(model):
    state = followed(model, batch=1, places=4)
    old = Objects(**{f.name: getattr(state, f.name) for f in fields(Objects)})
    old = scalor._kept(old, torch.tensor([[True, False, True, False]]))
    likely = proposals_of(torch.tensor([[0.1, 0.9, 0.0, 0.5]]))
    objects, given = model._joined(old, likely, old.alive, torch.tensor([7]))
    assert objects.what[0, 1, 0] == 1  # the likeliest cell in the first free place
    assert objects.what[0, 3, 0] == 3
    assert torch.equal(objects.what[0, 0], state.what[0, 0])
    assert objects.name[0].tolist() == [1, 8, 3, 9]
    assert given.tolist() == [9]
    full, given = model._joined(
        Objects(**{f.name: getattr(state, f.name) for f in fields(Objects)}),
        proposals_of(torch.tensor([[0.9, 0.9, 0.9, 0.9]])),
        state.alive,
        torch.tensor([7]),
    )
    assert torch.equal(full.what, state.what)  # no place, no discovery
    assert given.tolist() == [7]
    none, given = model._joined(old, proposals_of(torch.zeros(1, 4)), old.alive, torch.tensor([7]))
    assert none.name[0].tolist() == [1, 0, 3, 0]
    assert given.tolist() == [7]


def test_a_place_freed_by_a_death_is_free_one_frame_later(model):
    """The authors limit discovery by the number of objects before propagation, so that a death counts only in the
    next frame."""
    state = followed(model, batch=1, places=4)
    old = Objects(**{f.name: getattr(state, f.name) for f in fields(Objects)})
    before = torch.tensor([[True, True, True, False]])
    old = scalor._kept(old, torch.tensor([[True, False, True, False]]))  # the second dies in this frame
    likely, given = proposals_of(torch.tensor([[0.9, 0.8, 0.7, 0.6]])), torch.tensor([7])
    now, given = model._joined(old, likely, before, given)
    assert now.name[0].tolist() == [1, 0, 3, 8]
    assert now.presence[0, 1] == 0
    later, given = model._joined(now, likely, now.alive, given)
    assert later.name[0].tolist() == [1, 9, 3, 8]
    assert given.tolist() == [9]


def test_a_step_counts_the_objects_before_they_are_propagated(learner, monkeypatch):
    """All die in this frame and every cell proposes an object: none is found yet, all places are filled in the next."""
    monkeypatch.setattr(scalor, "LONGEST_ABSENCE", -1.0)
    monkeypatch.setattr(scalor, "CARRIED_ABOVE", 0.0)
    with torch.no_grad():
        frame, state = torch.rand(2, 3, 64, 64), followed(learner)
        _, after = learner._step(frame, state, AFTER)
        assert not after.alive.any()
        assert after.names_given.tolist() == [3, 3]
        _, later = learner._step(frame, after, AFTER)
        assert later.alive.all()
        assert later.name.tolist() == [[4, 5, 6], [4, 5, 6]]


def test_places_are_never_exceeded_and_names_never_shared(learner):
    torch.manual_seed(0)
    clip, state = random_clip(2, 5, 64), learner.initial_state(2, slots=4)
    known = [{}, {}]
    with torch.no_grad():
        for t in range(5):
            before = state
            _, state = learner._step(clip.frames[:, t], state, AFTER)
            assert (state.alive == (state.name > 0)).all()
            for b in range(2):
                names = [name for name in state.name[b].tolist() if name]
                assert len(names) == len(set(names))
                for name in names:  # an object stays in its place
                    place = state.name[b].tolist().index(name)
                    assert known[b].setdefault(name, place) == place
                new = set(names) - set(before.name[b].tolist())
                assert all(name > before.names_given[b] for name in new)
                for place in torch.nonzero(state.alive[b]).flatten().tolist():
                    if state.name[b, place].item() in new:
                        assert state.presence[b, place] > scalor.CARRIED_ABOVE
                        assert state.hidden[b, place].abs().max() == 0


# ---- rendering -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_the_rendering_s_sums(learner):
    objects = followed(learner)
    foreground, alpha, alphas, importances = learner._render(objects)
    assert ((alphas >= 0) & (alphas <= 1 + 1e-6)).all()
    assert ((alpha >= 0) & (alpha <= 1)).all()
    torch.testing.assert_close(alpha.squeeze(1), alphas.sum(1).clamp(0, 1), atol=1e-5, rtol=0)
    weights = importances / (importances.sum(1, keepdim=True) + EPS)
    assert (weights.sum(1) <= 1 + 1e-5).all()
    touched = importances.sum(1) > 1e-6
    torch.testing.assert_close(weights.sum(1)[touched], torch.ones(int(touched.sum())))
    assert foreground[~touched.unsqueeze(1).expand_as(foreground)].abs().max() < 1e-5
    gone = replace(objects, presence=torch.zeros_like(objects.presence))
    nothing, uncovered, _, _ = learner._render(gone)
    assert nothing.abs().max() == 0
    assert uncovered.max() <= 1e-6


def test_only_what_has_a_place_need_be_painted(learner):
    """The plain way paints all followed objects and all proposals, most of which are absent."""
    torch.manual_seed(0)
    state = followed(learner, places=4)
    old = Objects(**{f.name: getattr(state, f.name) for f in fields(Objects)})
    old = scalor._kept(old, torch.tensor([[True, False, False, False], [False, True, False, True]]))
    presence = torch.zeros(2, 16, 1)
    presence[0, [2, 7, 11]], presence[1, [0, 15]] = 0.8, 0.4
    new = Proposals(torch.randn(2, 16, 8), boxes(16), torch.randn(2, 16, 1), presence)
    every = {f.name: torch.cat([getattr(old, f.name), getattr(new, f.name)], dim=1) for f in fields(Proposals)}
    empty = learner.initial_state(2, slots=21)
    plain = Objects(**{f.name: every.get(f.name, getattr(empty, f.name)) for f in fields(Objects)})
    short, _ = learner._joined(old, new, old.alive, state.names_given)
    painted = []
    for objects in (short, plain):
        foreground, alpha, _, _ = learner._render(objects)
        loss = foreground.square().sum() + alpha.sum()
        painted.append((foreground, alpha, *torch.autograd.grad(loss, tuple(learner.glimpse_decoder.parameters()))))
    assert painted[0][1].max() > 0.1
    for one, other in zip(*painted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_the_nearer_object_is_in_front(model, monkeypatch):
    """Σ w_n α_n o_n, with w by σ(−depth)."""

    def painted(what):  # the colour is the latent's first number, the mask full
        colour = what[:, :, :1, None, None].expand(-1, -1, 3, 8, 8)
        return colour, torch.ones_like(colour[:, :, :1])

    monkeypatch.setattr(model.glimpse_decoder, "forward", painted)
    objects, what = followed(model, batch=1, places=2), torch.zeros(1, 2, 8)
    what[:, 1] = 1
    there = {"what": what, "box": torch.tensor([[[0.5, 0.5, 0.0, 0.0]] * 2]), "presence": torch.ones(1, 2, 1)}
    for depth in (-3.0, 3.0):
        found = model._render(replace(objects, **there, depth=torch.tensor([[[0.0], [depth]]])))[0]
        near = 1 / (1 + math.exp(depth))
        assert found[0, 0, 32, 32].item() == pytest.approx(near / (near + 0.5), rel=1e-4)


def test_the_limit_lets_gradients_pass():
    alpha = torch.tensor([-0.5, 0.5, 1.5], requires_grad=True)
    kept = limited(alpha)
    torch.testing.assert_close(kept, torch.tensor([0.0, 0.5, 1.0]), atol=1e-6, rtol=0)
    assert torch.autograd.grad(kept.sum(), alpha)[0].tolist() == [1, 1, 1]


def test_labels_by_scalor_s_rule(model):
    """The nearest of those that cover a pixel; the background where none covers it well."""
    alphas = torch.tensor([[0.9, 0.9, 0.2, 0.2], [0.0, 0.5, 0.2, 0.0]]).view(1, 2, 1, 4)
    importances = alphas * torch.tensor([0.3, 0.8]).view(1, 2, 1, 1)
    alpha = alphas.sum(1, keepdim=True).clamp(max=1)
    labels = model._labels(alpha, alphas, importances, torch.tensor([[5, 9]]))
    assert labels.flatten().tolist() == [6, 10, 1, 1]  # the third is covered by both together, but by neither alone


# ---- likelihood, divergences, schedules ------------------------------------------------------------------------------


def test_presence_as_expected_costs_nothing():
    logits = torch.randn(50)
    assert bernoulli_divergence(logits, logits.sigmoid()).abs().max() < 1e-6
    assert (bernoulli_divergence(logits, torch.rand(50)) >= -1e-6).all()
    yes = torch.distributions.Bernoulli(logits=logits)
    plain = torch.distributions.kl_divergence(yes, torch.distributions.Bernoulli(torch.tensor(0.1)))
    torch.testing.assert_close(bernoulli_divergence(logits, torch.full((50,), 0.1)), plain, atol=1e-5, rtol=1e-4)


def test_a_perfect_picture(model, monkeypatch):
    """3 H W · 1.3836 nats at σ = 0.1."""
    clip = random_clip(1, 1, 64)
    monkeypatch.setattr(model, "_render", lambda o: _seen(clip, o))
    loss = model(clip).losses["reconstruction"]
    assert loss.item() == pytest.approx(-3 * 64 * 64 * 1.3836, rel=1e-4)


def _seen(clip, objects):
    empty = torch.zeros(1, objects.name.shape[1], 64, 64)
    return clip.frames[:, 0], torch.ones(1, 1, 64, 64), empty, empty


def test_schedules():
    model = SCALOR(replace(reduced(SCALORConfig()), what_dim=2))
    steps = (0, 10_000, 20_000, 50_000)
    assert [model.annealed(u).temperature for u in steps] == pytest.approx([1, math.sqrt(0.5), 0.5, 0.5])
    assert [model.annealed(u).presence_prior for u in (0, 250, 500)] == pytest.approx([0.1, 0.0505, 0.001])
    assert [model.annealed(u).cut for u in (0, 29_999, 30_000)] == [True, True, False]
    assert model.annealed(None) == AFTER


@pytest.mark.parametrize("cut", [True, False])
def test_the_cut_of_gradients_between_frames(learner, cut):
    state = followed(learner, batch=1)
    tracked = {name: getattr(state, name).requires_grad_() for name in ("what", "hidden", "box", "prior_hidden")}
    maps = state.map_hidden.requires_grad_()
    output, _ = learner._step(torch.rand(1, 3, 64, 64), state, replace(AFTER, cut=cut))
    loss = output.foreground.sum() + output.kl_what.sum()
    found = torch.autograd.grad(loss, [*tracked.values(), maps], allow_unused=True)
    for gradient in found[:-1]:
        assert (gradient is None or gradient.abs().max() == 0) == cut
    assert found[-1].abs().max() > 0  # the features' memory is never cut


def test_the_curriculum_hides_the_background():
    """Until it ends the picture is the objects' alone; then what they leave is the background's. Segments are always
    by the objects' own masks."""
    torch.manual_seed(0)
    model = SCALOR(replace(reduced(SCALORConfig()), curriculum=10)).train()
    clip, drawing = random_clip(1, 2, 64), list(model.background.decoder.parameters())

    def seen(update):
        torch.manual_seed(1)
        output = model(clip, update=update)
        learned = torch.autograd.grad(output.losses["reconstruction"].sum(), drawing)
        return output, max(gradient.abs().max() for gradient in learned)

    (during, hidden), (after, visible) = seen(9), seen(10)
    assert hidden == 0
    assert visible > 0
    assert during.losses["reconstruction"].mean() > after.losses["reconstruction"].mean() + 1
    assert torch.equal(during.labels[:, 0], after.labels[:, 0])
    assert model.annealed(None) == AFTER


@torch.no_grad()
def test_frames_may_be_by_themselves_at_first():
    """As if each were the first of a video: nothing is propagated. Then as ever, and always so when it only watches."""
    torch.manual_seed(0)
    model = SCALOR(replace(reduced(SCALORConfig()), alone=10)).eval()
    model.discovery.heads["presence"].bias.fill_(1.0)  # so that there are objects
    plain = SCALOR(reduced(SCALORConfig())).eval()
    plain.load_state_dict(model.state_dict())
    clip = random_clip(2, 3, 64)
    alone, together = model(clip, update=9), model(clip, update=10)
    for t in range(3):
        frame = plain(Clip(clip.frames[:, t : t + 1]), update=9)
        for name, loss in frame.losses.items():
            torch.testing.assert_close(alone.losses[name][:, t], loss[:, 0], atol=1e-3, rtol=1e-5)
    assert not torch.allclose(alone.losses["where"][:, 1:], together.losses["where"][:, 1:])
    assert torch.equal(together.losses["where"], plain(clip, update=10).losses["where"])
    assert torch.equal(model.unroll(clip).labels, together.labels)


def test_at_the_first_frame_nothing_is_propagated(model):
    frame, state = torch.rand(2, 3, 64, 64), model.initial_state(2)
    _, kl = model._propagated(frame, torch.randn(2, 64, 4, 4), state, AFTER)
    assert all(divergence.abs().max() == 0 for divergence in kl.values())


def test_the_background_has_a_past(learner):
    """Its prior is the unit Gaussian at first, and then begins at the last background."""
    frame, alpha = torch.rand(1, 3, 64, 64), torch.zeros(1, 1, 64, 64)
    background = learner.background.eval()
    first = learner.initial_state(1)
    z, hidden, divergence = background(frame, alpha, first)
    assert hidden.abs().max() == 0
    later = replace(first, background=z, seen=torch.ones(1, dtype=torch.bool))
    _, hidden, again = background(frame, alpha, later)
    assert hidden.abs().max() > 0
    assert min(divergence.item(), again.item()) >= 0
    assert divergence.item() != pytest.approx(again.item())


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_parameter_counts_are_the_authors():
    full = experiments.get("scalor-movi-a").build_model()
    assert count(full) == 5_000_002
    parts = {"frame_encoder": 378_656, "conv_lstm": 614_912, "propagation": 459_288, "discovery": 177_787}
    assert {name: count(getattr(full, name)) for name in parts} == parts
    assert (count(full.glimpse_encoder), count(full.glimpse_decoder)) == (452_560, 304_084)
    background = full.background
    assert (count(background.encoder), count(background.decoder)) == (194_276, 2_413_555)
    assert count(background.prior_gru) + count(background.prior_head) == 4_884
    for size, grid, glimpse, total in ((128, 4, 64, 5_088_834), (64, 8, 32, 2_819_106), (64, 4, 32, 2_833_826)):
        assert count(SCALOR(SCALORConfig(size=(size, size), grid=grid, glimpse=glimpse))) == total


@pytest.mark.parametrize(("size", "grid", "glimpse"), [(128, 8, 64), (128, 4, 64), (64, 8, 32)])
@torch.no_grad()
def test_other_sizes_run(size, grid, glimpse):
    model = SCALOR(SCALORConfig(size=(size, size), grid=grid, glimpse=glimpse, slots=3)).train()
    losses = model(Clip(torch.rand(1, 2, 3, size, size))).losses
    assert all(torch.isfinite(loss).all() for loss in losses.values())


def test_what_its_networks_cannot_take_is_refused():
    with pytest.raises(BadInput, match="made for 64x64 or 128x128"):
        SCALORConfig(size=(32, 32))
    for network in (lambda: GlimpseEncoder(16, 4), lambda: GlimpseDecoder(16, 4, fine=False)):
        with pytest.raises(BadInput, match="expected 32 or 64"):
            network()
    with pytest.raises(BadInput, match="one for the background"):
        SCALOR(reduced(SCALORConfig())).initial_state(1, slots=1)
    with pytest.raises(BadInput, match="more than 0"):
        SCALORConfig(sigma=0.0)


def test_the_paper_s_hyper_parameters():
    for level, slots in zip("abcde", (11, 11, 11, 16, 16), strict=True):
        made = experiments.get(f"scalor-movi-{level}")
        assert (made.model.slots, made.model.grid, made.training.segment) == (slots, 8, 6)
        assert made.model.curriculum == made.model.alone == 0
        assert {weight(0) for weight in made.training.weights.values()} == {1.0}
        assert isinstance(made.training.optimizer, RMSpropConfig)
        group = made.training.optimizer.groups["model"]
        assert (group.learning_rate(0), group.clip) == (1e-4, 1.0)
