"""What becomes of objects over time, against the scores that summarise it."""

import numpy as np
import pytest

from tests.figures.made_up import watched
from vonet.evaluation import metrics
from vonet.evaluation.protocol import NULL, score
from vonet.evaluation.timeline import timelines


def test_a_video_in_which_everything_is_known():
    video = watched()
    left, right = timelines(video.true_ids, video.ids)
    assert (left.object_id, right.object_id) == (4, 9)
    assert left.holders.tolist() == [1, 1, 2, 2]
    assert left.switches == [2]
    assert left.fragmented == []
    assert right.holders.tolist() == [3, NULL, NULL, 3]  # shared half and half, nobody holds most of it
    assert right.switches == []
    assert right.fragments.tolist() == pytest.approx([1, 2, 2, 1])
    assert right.fragmented == [(1, 2)]


def test_an_object_that_is_away_or_in_nobodys_hands_has_no_holder():
    true = np.array([1, 0, 1, 1, 1]).reshape(5, 1, 1)
    ids = np.array([2, 2, 0, 3, 2]).reshape(5, 1, 1)
    (line,) = timelines(true, ids)
    assert line.holders.tolist() == [2, NULL, NULL, 3, 2]
    assert line.fragments.tolist() == [1, 0, 0, 1, 1]
    assert line.switches == [3, 4]


@pytest.mark.parametrize("seed", range(5))
def test_they_add_up_to_the_scores(seed):
    rng = np.random.default_rng(seed)
    true, ids = rng.integers(0, 4, (9, 3, 5)), rng.integers(0, 5, (9, 3, 5))
    lines = timelines(true, ids)
    assert np.mean([len(line.switches) for line in lines]) == score(true, ids)["identity_switches"]
    for t in range(9):
        held = [line.fragments[t] for line in lines if line.fragments[t] > 0]
        table = metrics.confusion(true[t], ids[t])
        assert np.mean(held) == pytest.approx(metrics.slots_per_object(table, NULL))
