"""Ids from masks, ARI, FG-ARI and mIoU, by the code of VONet, SAVi and Multi-Object Datasets and by ours."""

import numpy as np
import pytest
import torch

from tests.golden.official import filling
from vonet.evaluation.metrics import Confusion, ari_of, confusion, fg_ari_of, miou_of
from vonet.interface.segmentation import segment_ids

FIXTURE = filling.read("metrics")
LARGEST_ID = 24
"""VONet's code counts true ids above as background in ARI and FG-ARI."""


def tables(case: str) -> list[Confusion]:
    return [confusion(true, predicted) for true, predicted in zip(*filling.labels(case), strict=True)]


def pruned(table: Confusion) -> Confusion:
    return table.to_background(np.asarray(table.true) > LARGEST_ID)


@pytest.mark.parametrize("case", ["usual", "many", "single"])
def test_scores_of_vonet(case):
    numbers = FIXTURE["numbers"]
    assert [fg_ari_of(pruned(table)) for table in tables(case)] == pytest.approx(numbers[f"vonet fg_ari {case}"])
    assert [ari_of(pruned(table)) for table in tables(case)] == pytest.approx(numbers[f"vonet ari {case}"])
    found = [miou_of(table) for table in tables(case)]
    assert found == pytest.approx(numbers[f"vonet miou {case}"], abs=1e-7)  # theirs adds 1e-8 to each union


@pytest.mark.parametrize("case", ["usual", "single"])
@pytest.mark.parametrize("source", ["savi", "multi_object_datasets"])
def test_rand_indices(source, case):
    numbers = FIXTURE["numbers"]
    assert [fg_ari_of(table) for table in tables(case)] == pytest.approx(numbers[f"{source} fg_ari {case}"])
    assert [ari_of(table) for table in tables(case)] == pytest.approx(numbers[f"{source} ari {case}"])


def test_the_ids_of_vonet():
    """The slot of the largest mask plus one, or 0 where that mask is not above 0.3, at twice the masks' size."""
    log_masks = torch.from_numpy(1.2 * filling.uniform("masks", (2, 5, 8, 8))).log_softmax(dim=1)
    ids = segment_ids(log_masks, None, (16, 16), "nearest", 0.3)
    numbers = FIXTURE["numbers"]
    assert np.bincount(ids.ravel(), minlength=6).tolist() == numbers["vonet pixels of ids"]
    assert filling.summary(ids)["sum"] == pytest.approx(numbers["vonet ids"]["sum"])
