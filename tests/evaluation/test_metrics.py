"""The metrics against scikit-learn, SciPy, brute force and cases worked by hand."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import adjusted_rand_score

from vonet.errors import BadInput
from vonet.evaluation import metrics
from vonet.evaluation.metrics import added, ari, confusion, fg_ari, mbo, miou


@st.composite
def maps(draw, most=6, side=5):
    """A true and a predicted map of the same shape."""
    shape = draw(st.tuples(*[st.integers(1, side)] * 3))
    ids = hnp.arrays(np.int64, shape, elements=st.integers(0, most - 1))
    return draw(ids), draw(ids)


def random_maps(seed, shape=(4, 9, 8), true=5, predicted=4):
    rng = np.random.default_rng(seed)
    return rng.integers(0, true, shape), rng.integers(0, predicted, shape)


# Plain versions


def plain_counts(true, predicted):
    return {(i, j): int(((true == i) & (predicted == j)).sum()) for i in np.unique(true) for j in np.unique(predicted)}


def plain_overlap(a, b):
    return Fraction(int((a & b).sum()), int((a | b).sum())) if (a | b).any() else Fraction(0)


def plain_miou(true, predicted):
    """Every assignment of predicted to true segments is tried."""
    truths, guesses = list(np.unique(true)), list(np.unique(predicted))
    table = [[plain_overlap(true == i, predicted == j) for j in guesses] for i in truths]
    guesses_and_none = list(range(len(guesses))) + [None] * len(truths)
    best = max(
        sum(table[i][j] for i, j in enumerate(chosen) if j is not None)
        for chosen in set(permutations(guesses_and_none, len(truths)))
    )
    return float(best / len(truths))


# Against others


@settings(max_examples=3000, deadline=None)
@given(maps())
def test_ari_is_scikit_learns(pair):
    true, predicted = pair
    assert ari(true, predicted) == pytest.approx(adjusted_rand_score(true.ravel(), predicted.ravel()), abs=1e-12)
    objects = true > 0
    if objects.any():
        expected = adjusted_rand_score(true[objects], predicted[objects])
        assert fg_ari(true, predicted) == pytest.approx(expected, abs=1e-12)
    else:
        assert fg_ari(true, predicted) == 1


@settings(max_examples=60, deadline=None)
@given(maps(most=6, side=2))
def test_miou_is_brute_force_over_all_assignments(pair):
    assert miou(*pair) == pytest.approx(plain_miou(*pair), abs=1e-12)


def test_miou_is_brute_force_for_six_ids():
    true, predicted = random_maps(3, (1, 4, 6), 6, 3)
    assert len(np.unique(true)) == 6
    assert miou(true, predicted) == pytest.approx(plain_miou(true, predicted), abs=1e-12)
    assert miou(predicted, true) == pytest.approx(plain_miou(predicted, true), abs=1e-12)


@settings(max_examples=300, deadline=None)
@given(maps())
def test_the_table_counts_pixels(pair):
    true, predicted = pair
    table = confusion(true, predicted)
    assert table.true.tolist() == np.unique(true).tolist()
    assert table.predicted.tolist() == np.unique(predicted).tolist()
    for t in range(len(true)):
        expected = plain_counts(true[t], predicted[t])
        for i, a in enumerate(table.true):
            for j, b in enumerate(table.predicted):
                assert table.counts[t, i, j] == expected.get((a, b), 0)


def test_mbo_is_an_obvious_version():
    true, predicted = random_maps(0)
    best = [max(plain_overlap(true == i, predicted == j) for j in range(4)) for i in range(1, 5)]
    assert mbo(true, predicted) == pytest.approx(float(sum(best) / 4))


# Facts


@settings(max_examples=200, deadline=None)
@given(maps(), st.permutations(range(6)), st.permutations(range(1, 6)))
def test_names_of_segments_do_not_matter(pair, predicted_names, true_names):
    true, predicted = pair
    renamed_true, renamed = np.array([0, *true_names])[true], np.array(predicted_names)[predicted]
    for metric in (ari, fg_ari, miou, mbo):
        assert metric(renamed_true, renamed) == pytest.approx(metric(true, predicted), abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(maps())
def test_scores_are_at_most_one_and_one_for_the_truth(pair):
    true, predicted = pair
    for metric in (ari, fg_ari, miou, mbo):
        assert metric(true, predicted) <= 1 + 1e-12
        assert metric(true, true) == 1
        assert metric(true, true + 7) == 1
    assert miou(true, predicted) >= 0


def test_worked_by_hand():
    """Two objects of four pixels, the second cut in half; background of eight."""
    true = np.array([[[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 2, 2], [1, 1, 2, 2]]])
    predicted = np.array([[[5, 5, 5, 5], [5, 5, 5, 5], [6, 6, 7, 7], [6, 6, 8, 8]]])
    assert miou(true, predicted) == pytest.approx((1 + 1 + 0.5) / 3)
    assert mbo(true, predicted) == pytest.approx((1 + 0.5) / 2)
    # 8 pixels: R = 4·3 + 2·1 + 2·1 = 16, A = 24, P = 12 + 2 + 2 = 16, E = 24·16/56, M = 20
    assert fg_ari(true, predicted) == pytest.approx((16 - 24 * 16 / 56) / (20 - 24 * 16 / 56))
    assert metrics.slots_per_object(confusion(true, predicted)) == pytest.approx((1 + 2) / 2)
    assert metrics.whole_objects(confusion(true, predicted)) == 1
    assert metrics.whole_objects(confusion(true, predicted), at_least=0.6) == 0.5


def test_one_cluster():
    true, _ = random_maps(0)
    whole = np.zeros_like(true)
    assert ari(true, whole) == 0
    assert fg_ari(true, whole) == 0
    assert miou(true, whole) == pytest.approx(max((true == i).mean() for i in range(5)) / 5)
    assert ari(whole, whole) == 1
    assert fg_ari(whole, whole) == 1  # no object at all: undefined, and 1 by convention


def test_empty_foreground():
    true, predicted = np.zeros((2, 4, 4), int), random_maps(0, (2, 4, 4))[1]
    assert fg_ari(true, predicted) == 1
    assert mbo(true, predicted) == 1
    assert miou(true, predicted, background=False) == 1
    assert 0 < miou(true, predicted) < 1


def test_more_slots_than_objects_and_the_reverse():
    true = np.repeat([[0, 0, 1, 1]], 4, axis=0)[None]
    many = np.arange(16).reshape(1, 4, 4)
    assert miou(true, many) == pytest.approx((1 / 8 + 1 / 8) / 2)
    assert fg_ari(true, many) == 0
    assert miou(many, true) == pytest.approx((1 / 8 + 1 / 8) / 16)


def test_null_pixels_are_a_segment_like_others():
    true = np.array([[[0, 0, 1, 1, 2, 2]]])
    predicted = np.array([[[1, 1, 2, 2, 0, 0]]])
    assert fg_ari(true, predicted) == 1
    assert miou(true, predicted) == 1


def test_swapped_identities_cost_the_video_but_not_the_images():
    """Two objects exchange their segments in the second half: by how much it costs is known."""
    frame = np.array([[0, 0, 0, 0], [1, 1, 2, 2]])
    true = np.stack([frame] * 4)
    swapped = true.copy()
    swapped[2:] = np.array([0, 2, 1])[true[2:]]
    table = confusion(true, swapped)
    for image in (metrics.image_fg_ari, metrics.image_miou, metrics.image_ari, metrics.image_mbo):
        assert image(true, swapped) == 1
    # Each object has 4 of its 8 pixels in each segment: R = 4·(4·3) = 48, A = P = 2·(8·7) = 112, n(n−1) = 240
    expected = (48 - 112**2 / 240) / (112 - 112**2 / 240)
    assert fg_ari(true, swapped) == pytest.approx(expected)
    assert expected < 0
    assert miou(true, swapped) == pytest.approx((1 + 1 / 3 + 1 / 3) / 3)
    assert metrics.identity_switches(table) == 1


def test_objects_that_vanish_and_return():
    true = np.array([1, 1, 0, 0, 1]).reshape(5, 1, 1) * np.ones((5, 2, 2), int)
    same = np.array([4, 4, 5, 5, 4]).reshape(5, 1, 1) * np.ones((5, 2, 2), int)
    other = np.array([4, 4, 5, 5, 6]).reshape(5, 1, 1) * np.ones((5, 2, 2), int)
    assert fg_ari(true, same) == 1
    assert metrics.identity_switches(confusion(true, same)) == 0
    assert fg_ari(true, other) < 1
    assert metrics.identity_switches(confusion(true, other)) == 1
    assert miou(true, other) == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.parametrize("ids", [[0, 7, 300], [0, 10**9, 2**40], [-5, 0, 255]])
def test_huge_and_negative_ids(ids):
    true, predicted = random_maps(0, true=3, predicted=3)
    small = np.array([0, 1, 2])[true]
    large = np.array(sorted(ids, key=lambda i: i != 0))[true]
    for metric in (ari, fg_ari, miou, mbo):
        assert metric(large, predicted) == pytest.approx(metric(small, predicted))
        assert metric(small, np.array(ids)[predicted]) == pytest.approx(metric(small, predicted))


def test_counts_are_exact_where_float32_is_not():
    """24 x 128 x 128 pixels: float32 sums lose the single pixel that makes the difference."""
    true = np.ones((24, 128, 128), np.uint8)
    true[:12] = 2
    predicted = true.copy()
    predicted[0, 0, 0] = 9
    exact = ari(true, predicted)
    assert exact == pytest.approx(adjusted_rand_score(true.ravel(), predicted.ravel()), abs=1e-15)
    assert 0 < 1 - exact < 1e-4


@pytest.mark.parametrize(
    "kind", [np.uint8, np.int16, np.int64, np.float32, np.float64, lambda a: torch.from_numpy(a), np.ndarray.tolist]
)
def test_any_kind_of_number(kind):
    true, predicted = random_maps(0)
    convert = kind if not isinstance(kind, type) else lambda a: a.astype(kind)
    for metric in (ari, fg_ari, miou, mbo):
        assert metric(convert(true), convert(predicted)) == metric(true, predicted)


def test_booleans_are_two_ids():
    true, predicted = random_maps(0, true=2, predicted=2)
    assert ari(true > 0, predicted > 0) == ari(true, predicted)


def test_what_is_not_ids_is_refused():
    true, predicted = random_maps(0)
    with pytest.raises(BadInput, match=r"shape \(4, 9, 8\) and the predicted \(4, 9, 7\)"):
        ari(true, predicted[..., :7])
    with pytest.raises(BadInput, match="the predicted ids are float64 and not whole numbers"):
        fg_ari(true, predicted + 0.5)
    with pytest.raises(BadInput, match="not whole numbers"):
        miou(true, np.full(true.shape, np.nan))
    with pytest.raises(BadInput, match="no pixel"):
        mbo(true[:0], predicted[:0])
    with pytest.raises(BadInput, match="are these ids of segments"):
        ari(np.arange(1100**2).reshape(1, 1100, 1100), np.zeros((1, 1100, 1100), int))
    for wrong, words in (
        (np.zeros((2, 3, 4, 5), int), r"shape \(2, 3, 4, 5\); expected T H W"),
        (np.zeros(7, int), r"shape \(7,\); expected T H W"),
        ([[1, 2], [3]], "not an array of numbers"),
        (np.ma.masked_equal(true, 0), "masked array"),
    ):
        with pytest.raises(BadInput, match=words):
            ari(wrong, wrong)
    for metric in (metrics.boundary_f, metrics.image_mbo):
        with pytest.raises(BadInput, match="they must be the same"):
            metric(true, predicted[:1])


def test_shapes_that_mean_the_same():
    true, predicted = random_maps(0)
    for metric in (ari, fg_ari, miou, mbo, metrics.image_fg_ari, metrics.boundary_f):
        assert metric(true[..., None], predicted[..., None]) == metric(true, predicted)
        assert metric(true[0], predicted[0]) == metric(true[:1], predicted[:1])
    tensors = [torch.from_numpy(a).to(torch.bfloat16).requires_grad_() for a in (true, predicted)]
    assert ari(*tensors) == ari(true, predicted)


def test_null_is_no_slot():
    """An object of which no slot is sure is neither whole nor shared nor switched."""
    true = np.ones((3, 2, 2), int)
    predicted = np.array([4, 0, 4]).reshape(3, 1, 1) * np.ones((3, 2, 2), int)
    table = confusion(true, predicted)
    assert metrics.identity_switches(table, null=0) == 0
    assert metrics.identity_switches(table) == 2
    assert metrics.slots_per_object(table, null=0) == 1
    assert metrics.slots_per_object(table) == pytest.approx(1 / ((2 / 3) ** 2 + (1 / 3) ** 2))
    nothing = confusion(true, np.zeros_like(true))
    assert metrics.whole_objects(nothing, null=0) == 0
    assert metrics.whole_objects(nothing) == 1
    assert metrics.slots_per_object(nothing, null=0) == 1


@settings(max_examples=100, deadline=None)
@given(maps(), st.permutations(range(6)))
def test_names_do_not_matter_for_the_others_either(pair, names):
    true, predicted = pair
    a, b = confusion(true, predicted), confusion(true, np.array(names)[predicted])
    for metric in (metrics.identity_switches, metrics.slots_per_object, metrics.whole_objects):
        assert metric(a) == pytest.approx(metric(b))
    assert metrics.boundary_f(true, predicted) == metrics.boundary_f(true, np.array(names)[predicted])
    assert metrics.stability(predicted) == pytest.approx(metrics.stability(np.array(names)[predicted]))


def test_a_tie_is_no_switch():
    true = np.ones((3, 1, 4), int)
    predicted = np.array([[[1, 1, 1, 2]], [[1, 1, 2, 2]], [[1, 2, 2, 2]]])
    assert metrics.identity_switches(confusion(true, predicted)) == 1
    assert metrics.identity_switches(confusion(true[:2], predicted[:2])) == 0


@pytest.mark.parametrize(("side", "tolerated"), [(32, 1), (64, 1), (128, 2), (256, 3)])
def test_near_is_eight_thousandths_of_the_diagonal(side, tolerated):
    true = np.zeros((1, side, side), int)
    true[:, :, : side // 2] = 1
    assert metrics.boundary_f(true, np.roll(true, tolerated, axis=2)) > metrics.boundary_f(
        true, np.roll(true, tolerated + 1, axis=2)
    )


def test_a_video_in_pieces_is_the_video():
    true, predicted = random_maps(0)
    true[0][true[0] == 4] = 3
    predicted[2:][predicted[2:] == 0] = 77
    whole = confusion(true, predicted)
    pieces = [slice(0, 1), slice(1, 3), slice(3, 4)]
    parts = added([confusion(true[piece], predicted[piece]) for piece in pieces])
    assert np.array_equal(whole.true, parts.true)
    assert np.array_equal(whole.predicted, parts.predicted)
    assert np.array_equal(whole.total, parts.total)


def test_ids_to_background():
    true, predicted = random_maps(0)
    table = confusion(true, predicted)
    moved = table.to_background(table.true >= 3)
    expected = confusion(np.where(true >= 3, 0, true), predicted)
    assert np.array_equal(moved.true, expected.true)
    assert np.array_equal(moved.counts, expected.counts)


# Boundaries and time


def test_boundaries_of_a_square():
    ids = np.zeros((1, 8, 8), int)
    ids[0, 2:5, 3:6] = 1
    found = metrics.boundaries(ids)[0]
    assert set(zip(*np.nonzero(found), strict=True)) == {
        *((1, c) for c in (3, 4, 5)),
        *((4, c) for c in (3, 4, 5)),
        *((r, 2) for r in (2, 3, 4)),
        *((r, 5) for r in (2, 3, 4)),
    }


def test_boundary_f_tolerates_a_pixel_and_no_more():
    true = np.zeros((1, 32, 32), int)
    true[:, 8:20, 8:20] = 1
    assert metrics.boundary_f(true, true) == 1
    assert metrics.boundary_f(true, np.roll(true, 1, axis=2)) == 1
    far = metrics.boundary_f(true, np.roll(true, 4, axis=2))
    assert 0 < far < 1
    assert metrics.boundary_f(true, np.zeros_like(true)) == 0
    assert metrics.boundary_f(np.zeros_like(true), np.zeros_like(true)) == 1
    noise = np.random.default_rng(0).integers(0, 5, true.shape)
    assert metrics.boundary_f(true, noise) < 0.5


def test_near_is_a_square_around_each_pixel():
    found = np.zeros((1, 9, 9), bool)
    found[0, 4, 4] = True
    near = metrics._near(found, 2)[0]
    assert near.sum() == 25
    assert near[2:7, 2:7].all()


def test_stability_of_what_stays_moves_and_flickers():
    ids = np.zeros((3, 4, 8), int)
    ids[:, :, :4] = 1
    assert metrics.stability(ids) == 1
    moving = ids.copy()
    moving[1:] = np.roll(moving[1:], 2, axis=2)
    # at the one change each of the two segments keeps 8 of 24 pixels
    assert metrics.stability(moving) == pytest.approx((1 / 3 + 1 / 3 + 1 + 1) / 4)
    flicker = ids.copy()
    flicker[1][flicker[1] == 1] = 5
    # each time: the background stays, 1 goes or comes, 5 comes or goes
    assert metrics.stability(flicker) == pytest.approx(2 / 6)
    assert metrics.stability(ids[:1]) == 1
