"""Protocols differ where papers differ: a case for each rule."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vonet.errors import BadInput
from vonet.evaluation import metrics, protocol
from vonet.evaluation.protocol import PROTOCOLS, SCORES, Scorer, score
from vonet.evaluation.run import _perfect_masks as perfect_masks
from vonet.interface import NULL, segment_ids


def two_objects(frames=12):
    """A background and two objects side by side, the same in all frames."""
    frame = np.zeros((4, 6), int)
    frame[1:3, 1:3], frame[1:3, 4:6] = 1, 2
    return np.stack([frame] * frames)


def test_all_scores_of_a_perfect_prediction():
    true = two_objects()
    for name in PROTOCOLS:
        scores = score(true, true + 1, name)
        assert set(scores) == set(SCORES)
        for perfect in ("fg_ari", "miou", "ari", "mbo", "image_fg_ari", "image_miou", "whole_objects", "boundary_f"):
            assert scores[perfect] == 1, (name, perfect)
        assert scores["identity_switches"] == scores["null_share"] == 0
        assert scores["slots_used"] == 3
        assert scores["slots_per_object"] == scores["stability"] == scores["true_stability"] == 1


def test_windows_forgive_what_happens_between_them():
    """The two objects swap segments after six frames: steve's windows do not see it, whole videos do."""
    true = two_objects()
    predicted = true + 1
    predicted[6:] = np.array([1, 3, 2])[true[6:]]
    assert score(true, predicted, "steve")["fg_ari"] == 1
    assert score(true, predicted, "steve")["identity_switches"] == 0
    for name in ("vonet", "savi", "videosaur"):
        assert score(true, predicted, name)["fg_ari"] < 0.1
        assert score(true, predicted, name)["identity_switches"] == 1


def test_windows_leave_out_an_incomplete_rest():
    true = two_objects(14)
    predicted = true + 1
    predicted[12:] = 1
    assert score(true, predicted, "steve")["miou"] == 1
    assert score(true, predicted, "vonet")["miou"] < 1
    with pytest.raises(BadInput, match="has 5 frames; the protocol 'steve' needs at least 6"):
        score(true[:5], true[:5], "steve")


def test_large_true_ids():
    """An object with id 24 is background for savi only, one with id 25 also for vonet, in ARI; mIoU keeps it there."""
    true = two_objects()
    predicted = np.where(true == 2, 2, np.where(true == 1, 2, 1))  # both objects in one segment
    both = score(true, predicted, "vonet")
    assert both["fg_ari"] == 0
    for large, forgiving in ((24, {"savi"}), (25, {"savi", "vonet"}), (64, {"savi", "vonet"})):
        renamed = np.where(true == 2, large, true)
        for name in ("vonet", "savi", "videosaur"):
            expected = 1 if name in forgiving else 0
            assert score(renamed, predicted, name)["fg_ari"] == expected, (large, name)
        assert score(renamed, predicted, "vonet")["miou"] == both["miou"]
        assert score(renamed, predicted, "savi")["miou"] != both["miou"]


def test_background_is_a_segment_of_miou_for_vonet_and_not_for_videosaur():
    true = two_objects()
    split = np.where(true == 0, np.arange(6) % 2 + 1, true + 2)  # the background in two halves, objects perfect
    assert score(true, split, "videosaur")["miou"] == 1
    assert score(true, split, "vonet")["miou"] == pytest.approx((2 + 0.5) / 3, abs=0.05)
    assert score(true, split, "vonet")["miou"] < 1


def test_null_pixels_for_vonet_and_for_no_other():
    probabilities = torch.tensor([0.30, 0.28, 0.22, 0.20]), torch.tensor([0.31, 0.29, 0.2, 0.2])
    log_masks = torch.stack(probabilities, dim=-1).log().view(4, 1, 2)
    sure = {
        name: segment_ids(log_masks, None, (1, 2), "nearest", rules.min_probability).tolist()
        for name, rules in PROTOCOLS.items()
    }
    assert sure == {"vonet": [[NULL, 1]], "savi": [[1, 1]], "steve": [[1, 1]], "videosaur": [[1, 1]], "spmot": [[1, 1]]}


def test_null_pixels_are_counted():
    true = two_objects()
    predicted = true + 1
    predicted[:, 0] = NULL
    scores = score(true, predicted)
    assert scores["null_share"] == pytest.approx(1 / 4)
    assert scores["slots_used"] == 3


def test_pieces_give_the_scores_of_the_whole():
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 4, (9, 8, 8)), rng.integers(0, 5, (9, 8, 8))
    whole, pieces = (Scorer(PROTOCOLS["vonet"]) for _ in range(2))
    whole.add(true, predicted)
    for piece in (slice(0, 1), slice(1, 5), slice(5, 9)):
        pieces.add(true[piece], predicted[piece])
    assert whole.scores() == pytest.approx(pieces.scores(), abs=1e-12)
    assert whole.scores()["stability"] == pytest.approx(metrics.stability(predicted))
    assert whole.scores()["boundary_f"] == pytest.approx(metrics.boundary_f(true, predicted))


def test_every_score_of_a_case_worked_by_hand():
    """Two frames, two objects of four pixels; the second is cut in half, and its halves swap; a column is null."""
    frame = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 2, 2], [0, 1, 1, 2, 2], [0, 0, 0, 0, 0]])
    true = np.stack([frame, frame])
    first = np.array([[0, 9, 9, 9, 9], [0, 5, 5, 6, 7], [0, 5, 5, 6, 7], [0, 9, 9, 9, 9]])
    predicted = np.stack([first, first])
    predicted[1][predicted[1] == 5] = 8
    scores = score(true, predicted)
    # background: 24 pixels, 16 of slot 9 and 8 null; object 1: 4 + 4 in slots 5 and 8; object 2: 4 + 4 in 6 and 7
    assert scores["miou"] == pytest.approx((16 / 24 + 4 / 8 + 4 / 8) / 3)
    assert scores["image_miou"] == pytest.approx((8 / 12 + 1 + 1 / 2) / 3)
    assert scores["mbo"] == pytest.approx(1 / 2)
    assert scores["image_mbo"] == pytest.approx((1 + 1 / 2) / 2)
    pairs = 16 * 15
    together, alike, guessed = 4 * 12, 2 * 56, 4 * 12
    chance = alike * guessed / pairs
    assert scores["fg_ari"] == pytest.approx((together - chance) / ((alike + guessed) / 2 - chance))
    together, alike, guessed = 12 + 2 + 2, 2 * 12, 12 + 2 + 2
    chance = alike * guessed / 56
    assert scores["image_fg_ari"] == pytest.approx((together - chance) / ((alike + guessed) / 2 - chance))
    from sklearn.metrics import adjusted_rand_score

    assert scores["ari"] == pytest.approx(adjusted_rand_score(true.ravel(), predicted.ravel()))
    assert scores["image_ari"] == pytest.approx(adjusted_rand_score(true[0].ravel(), predicted[0].ravel()))
    assert scores["whole_objects"] == 1
    assert scores["slots_per_object"] == pytest.approx(2)
    assert scores["identity_switches"] == pytest.approx(1 / 2)  # slot 5 to 8; object 2 is always a tie
    assert scores["slots_used"] == 5
    assert scores["null_share"] == pytest.approx(8 / 40)
    assert scores["stability"] == pytest.approx((1 + 1 + 1 + 1) / 6)  # null, 6, 7 and 9 stay; 5 goes, 8 comes
    assert scores["true_stability"] == 1
    assert scores["boundary_f"] == pytest.approx(metrics.boundary_f(true, predicted))


def test_scores_refuse_what_does_not_fit():
    true = two_objects()
    with pytest.raises(BadInput, match="they must be the same"):
        score(true[:6], true)
    assert score(torch.from_numpy(true), torch.from_numpy(true) + 1)["miou"] == 1


def test_an_unknown_protocol_is_refused():
    with pytest.raises(BadInput, match="there is no protocol 'ours'; there are vonet, savi, steve, videosaur"):
        protocol.get("ours")


# From masks to ids


def test_ids_are_the_argmax_at_the_new_size():
    log_masks = torch.randn(3, 5, 4, 6).log_softmax(dim=1)
    ids = segment_ids(log_masks, None, (8, 12), "nearest", None)
    assert np.array_equal(ids, log_masks.argmax(dim=1).add(1).numpy().repeat(2, 1).repeat(2, 2))
    smooth = F.interpolate(log_masks, size=(8, 12), mode="bilinear").argmax(dim=1).add(1)
    assert np.array_equal(segment_ids(log_masks, None, (8, 12), "bilinear", None), smooth.numpy())


def test_perfect_masks_are_perfect_where_cells_are_pixels_and_only_there():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 4, (2, 4, 4)).repeat(4, 1).repeat(4, 2) * 9
    for cells, exact in (((16, 16), True), ((4, 4), True), ((3, 3), False)):
        found = segment_ids(perfect_masks(ids, cells), None, (16, 16), "nearest", None)
        assert (metrics.ari(ids, found) == 1) == exact


def test_bilinear_masks_lose_less_of_small_things():
    """The specification's finding: at half the size, perfect masks enlarged by nearest lose the borders."""
    down, across = np.mgrid[:64, :64]
    ids = np.zeros((1, 64, 64), int)
    for number, (y, x, r) in enumerate([(13, 20, 4.3), (40, 33, 6.2), (22, 50, 3.6), (50, 12, 5.1)], start=1):
        ids[0][(down - y) ** 2 + (across - x) ** 2 < r**2] = number
    masks = perfect_masks(ids, (32, 32))
    nearest, bilinear = (
        metrics.miou(ids, segment_ids(masks, None, (64, 64), how, None)) for how in ("nearest", "bilinear")
    )
    assert 0.7 < nearest < bilinear < 1
