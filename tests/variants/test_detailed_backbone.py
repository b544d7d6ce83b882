"""Features at the frame's own size."""

import torch
import torch.nn.functional as F

from vonet.experiments.closeup import closeup_model, fine_model
from vonet.interface import Clip
from vonet.variants.detailed_backbone import DetailedBackboneConfig
from vonet.variants.object_decoder import AlignmentConfig

CONFIG = DetailedBackboneConfig(channels=(8, 8), strides=(2, 1), feature_dim=6, detail_channels=4)


def test_features_are_as_large_as_the_frame_and_begin_as_the_enlarged_ones():
    torch.manual_seed(0)
    detailed, frame = CONFIG.build((16, 24)), torch.rand(2, 3, 16, 24)
    assert detailed.feature_size == (16, 24)
    coarse = super(type(detailed), detailed).forward(frame)
    assert coarse.shape == (2, 6, 8, 12)
    enlarged = F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(detailed(frame), enlarged)


def test_a_single_pixel_reaches_the_features_through_the_detail():
    """Once the last layer has weights, neighbours within the same coarse cell differ."""
    torch.manual_seed(0)
    detailed = CONFIG.build((16, 16))
    torch.nn.init.normal_(detailed.detail[-1].weight)
    frame = torch.zeros(1, 3, 16, 16)
    dotted = frame.clone()
    dotted[..., 8, 8] = 1
    change = (detailed.detail(dotted) - detailed.detail(frame)).abs().sum(1)[0]
    assert change[8, 8] > 0
    assert change[8, 11] == 0  # two convolutions of 3x3 reach two pixels


def test_weights_without_detail_go_on_where_they_were_in_a_finer_model():
    """The parameters of the coarse model are all used, and only those of the detail are new."""
    torch.manual_seed(0)
    coarse, finer = closeup_model().build(), fine_model(AlignmentConfig()).build()
    missing, unexpected = finer.load_state_dict(coarse.state_dict(), strict=False)
    assert not unexpected
    assert {name.split(".")[1] for name in missing} == {"detail"}
    assert finer.cells == finer.size == (32, 32)
    assert finer.unroll(Clip(torch.rand(1, 2, 3, 32, 32))).log_masks.shape == (1, 2, 5, 32, 32)


def test_a_cell_of_the_u_net_and_the_smallest_area_stay_the_same_in_pixels():
    coarse, finer = closeup_model(), fine_model(AlignmentConfig())
    assert coarse.attention.reduction * coarse.backbone.stride == finer.attention.reduction
    assert coarse.slot_encoder.smallest_area * coarse.backbone.stride**2 == finer.slot_encoder.smallest_area
