"""READ FIRST: the contract between the parts of vonet.

One legend of dimensions for code, docs and figures::

    B batch    T time     K slots      D slot width    C channels
    H W image  h w features            N tokens        V vocabulary

A model takes one frame and a state, and gives masks and the next state (`step`). A video is a scan of that step
(`unroll`); training is a scan followed by named losses (calling the model). The state is a value: it is an argument and
a result, and the model stores nothing.
"""

from vonet.interface.background import Extent, background_ids, border_counts, extents
from vonet.interface.checks import check_batch, check_fit, check_frames, check_size, check_slots
from vonet.interface.contract import (
    Clip,
    EmptyState,
    ExplainingModel,
    Explanation,
    ModelConfig,
    Output,
    Segmentation,
    SlotState,
    State,
    StateT,
    StepOutput,
    StreamingModel,
    VideoModel,
    Vocabulary,
    check_slot_state,
    device_of,
    joined_states,
    total,
)
from vonet.interface.pixels import frames_tensor
from vonet.interface.segmentation import MIN_PROBABILITY, NULL, Enlargement, enlarge, label_ids, segment_ids, slot_ids

__all__ = [
    "MIN_PROBABILITY",
    "NULL",
    "Clip",
    "EmptyState",
    "Enlargement",
    "ExplainingModel",
    "Explanation",
    "Extent",
    "ModelConfig",
    "Output",
    "Segmentation",
    "SlotState",
    "State",
    "StateT",
    "StepOutput",
    "StreamingModel",
    "VideoModel",
    "Vocabulary",
    "background_ids",
    "border_counts",
    "check_batch",
    "check_fit",
    "check_frames",
    "check_size",
    "check_slot_state",
    "check_slots",
    "device_of",
    "enlarge",
    "extents",
    "frames_tensor",
    "joined_states",
    "label_ids",
    "segment_ids",
    "slot_ids",
    "total",
]
