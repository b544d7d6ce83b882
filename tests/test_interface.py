import jaxtyping
import pytest
import torch

from vonet.errors import BadInput
from vonet.interface import Clip, SlotState, check_frames, enlarge, total
from vonet.schedule import Product, Schedule, constant


@pytest.mark.parametrize("how", ["nearest", "bilinear"])
@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_enlarged_masks_sum_to_one(how, spread):
    log_masks = (spread * torch.randn(2, 5, 6, 4, 4)).log_softmax(dim=2)
    large = enlarge(log_masks, (16, 12), how)
    assert large.shape == (2, 5, 6, 16, 12)
    torch.testing.assert_close(large.logsumexp(dim=2), torch.zeros(2, 5, 16, 12), atol=1e-4, rtol=0)


def test_nearest_repeats_cells():
    log_masks = torch.randn(1, 3, 2, 2).log_softmax(dim=1)
    assert torch.equal(
        enlarge(log_masks, (4, 4), "nearest"), log_masks.repeat_interleave(2, -1).repeat_interleave(2, -2)
    )


def test_a_clip_continues_unless_told_that_a_video_begins():
    assert not Clip(torch.rand(2, 3, 3, 4, 4)).is_first.any()


@pytest.mark.parametrize(
    ("frames", "word"),
    [
        (torch.rand(2, 3, 4, 4), "shape"),
        (torch.rand(2, 3, 4, 4, 3), "shape"),
        (torch.rand(0, 3, 3, 4, 4), "shape"),
        (torch.zeros(2, 3, 3, 4, 4, dtype=torch.uint8), "uint8"),
        (2 * torch.ones(1, 1, 3, 4, 4), "values from 2 to 2"),
        (-torch.ones(1, 1, 3, 4, 4), "values from -1"),
        (torch.full((1, 1, 3, 4, 4), torch.nan), "nan"),
    ],
)
def test_bad_frames_are_refused_with_a_sentence(frames, word):
    with pytest.raises(BadInput, match=word):
        check_frames(frames, "B T 3 H W")


def test_a_clip_checks_its_frames_and_flags():
    with pytest.raises(BadInput, match="shape"):
        Clip(torch.rand(2, 3, 4, 4))
    with pytest.raises(BadInput, match="one boolean per frame"):
        Clip(torch.rand(2, 3, 3, 4, 4), torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(BadInput, match="one boolean per frame"):
        Clip(torch.rand(2, 3, 3, 4, 4), torch.zeros(2, 3))


def test_shapes_are_enforced_in_tests():
    with pytest.raises(jaxtyping.TypeCheckError, match="slots"):
        SlotState(slots=torch.rand(2, 3, 4), noise=torch.rand(2, 3, 5))


def test_total_is_the_weighted_sum_of_means():
    losses = {"a": torch.tensor([[1.0, 3.0]]), "b": torch.tensor([[10.0, 20.0]])}
    assert total(losses, {"b": 0.1, "a": 2.0}).item() == pytest.approx(2 * 2 + 1.5)


@pytest.mark.parametrize("weights", [{"a": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "c": 1.0}])
def test_weights_must_name_exactly_the_losses(weights):
    losses = {"a": torch.ones(1, 1), "b": torch.ones(1, 1)}
    with pytest.raises(BadInput, match=r"\['a', 'b'\]"):
        total(losses, weights)


def test_schedules_are_straight_lines_between_their_points():
    rate = Schedule(((0, 1e-5), (5_000, 1e-4), (100_000, 1e-4), (150_000, 1e-5)))
    for update, value in [(0, 1e-5), (2_500, 5.5e-5), (5_000, 1e-4), (60_000, 1e-4), (125_000, 5.5e-5), (10**6, 1e-5)]:
        assert rate(update) == pytest.approx(value)
    assert constant(3.0)(0) == constant(3.0)(10**9) == 3.0
    assert rate.scaled(0.5)(2_500) == pytest.approx(2.75e-5)


def test_schedules_may_be_curves_and_products():
    cosine = Schedule(((0, 1.0), (30_000, 0.1)), curve="cosine")
    assert [cosine(u) for u in (0, 15_000, 30_000, 10**6)] == pytest.approx([1, 0.55, 0.1, 0.1])
    assert cosine(100) - cosine(200) < 0.1 * (cosine(15_000) - cosine(15_100))  # leaves level
    halving = Schedule(((0, 8.0), (20, 2.0)), curve="halving")
    assert [halving(u) for u in (0, 10, 20, 30)] == pytest.approx([8, 4, 2, 2])
    assert halving.scaled(0.5)(10) == pytest.approx(2)
    warmed = Product(Schedule(((0, 0.0), (10, 1.0))), halving)
    assert [warmed(u) for u in (0, 5, 10, 20)] == pytest.approx([0, 0.5 * 8 * 0.5**0.5, 4, 2])
    with pytest.raises(BadInput, match="above 0"):
        Schedule(((0, 1.0), (5, 0.0)), curve="halving")


@pytest.mark.parametrize("points", [(), ((5, 1.0), (0, 2.0)), ((0, 1.0), (0, 2.0))])
def test_a_schedule_out_of_order_is_refused(points):
    with pytest.raises(BadInput):
        Schedule(points)
