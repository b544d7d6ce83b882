"""Scattered masks cost, compact ones do not, whatever their size."""

import numpy as np
import torch

from vonet.model.compactness import UNTOLD, scatter


def cost(ids, slots=4):
    """Of hard masks, per cell."""
    ids = torch.as_tensor(ids)
    masks = torch.nn.functional.one_hot(ids.long(), slots).permute(2, 0, 1).double().clamp(min=1e-9)
    return scatter((masks / masks.sum(0)).log()).item() / ids.numel()


def frame(*boxes):
    ids = np.zeros((32, 32), np.int64)
    for slot, rows, columns in boxes:
        ids[slice(*rows), slice(*columns)] = slot
    return ids


def test_two_things_in_one_slot_cost_more_than_in_two():
    boxes = ((4, 8), (4, 8)), ((20, 24), (22, 26))
    apart, together = (frame((1, *boxes[0]), (other, *boxes[1])) for other in (2, 1))
    assert cost(together) > cost(apart) + 0.03


def test_a_ring_costs_more_than_the_thing_whole():
    whole = frame((1, (4, 16), (4, 16)))
    ring = frame((1, (4, 16), (4, 16)), (2, (7, 13), (7, 13)))
    assert cost(ring) > cost(whole) + 0.03


def test_regions_of_any_size_and_cut_cost_the_same():
    expected = np.log(2 * np.pi * np.e / 12)  # of a square, whatever its side
    for ids in (frame(), frame((1, (0, 32), (16, 32))), frame((1, (0, 32), (8, 32)))):
        np.testing.assert_allclose(cost(ids), expected, atol=0.005)


def test_against_moments_counted_one_by_one():
    masks = torch.rand(2, 3, 5, 6, dtype=torch.float64).softmax(dim=1)
    found = scatter(masks.log())
    for b in range(2):
        expected = 0.0
        for k in range(3):
            mask = masks[b, k].numpy()
            places, weights = np.argwhere(mask > -1), mask.flatten()
            covariance = np.cov(places.T, aweights=weights, ddof=0) + np.eye(2) / 12
            covered = 2 * np.pi * np.e * np.sqrt(np.linalg.det(covariance))
            expected += mask.sum() ** 2 / (mask.sum() + UNTOLD) * np.log(covered / mask.sum())
        np.testing.assert_allclose(found[b].item(), expected, rtol=1e-9)


def test_a_tiny_slot_hardly_pays_for_being_everywhere():
    even = torch.full((2, 16, 16), 1e-3, dtype=torch.float64)
    even[0] = 1 - 1e-3
    alone = torch.stack([torch.ones_like(even[0]), torch.full_like(even[0], 1e-12)])
    assert (scatter(even.log()) - scatter(alone.log())).abs() < 0.5


def test_empty_slots_are_no_trouble():
    log_masks = torch.full((1, 3, 8, 8), -50.0)
    log_masks[:, 0] = 0.0
    log_masks.requires_grad_()
    value = scatter(log_masks)
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(log_masks.grad).all()
