"""Features at the frame's size."""

import torch

from vonet.variants.fine_backbone import FineBackboneConfig


def test_fine_features_see_a_single_pixel():
    config = FineBackboneConfig(channels=(8, 8), strides=(2, 1), feature_dim=6)
    backbone = config.build((16, 12))
    frame = torch.rand(1, 3, 16, 12)
    assert backbone.feature_size == (16, 12)
    assert backbone(frame).shape == (1, 6, 16, 12)
    one, other = frame.clone(), frame.clone()
    one[..., 6, 6], other[..., 6, 7] = 1 - one[..., 6, 6], 1 - other[..., 6, 7]
    with torch.no_grad():
        changes = [(backbone(changed) - backbone(frame)).abs().sum(1)[0] for changed in (one, other)]
    assert all(change[6, 6:8].min() > 0 for change in changes)
    assert not torch.allclose(changes[0], changes[1])
