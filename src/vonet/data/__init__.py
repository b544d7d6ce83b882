"""Where videos come from; knows nothing of models."""

from vonet.data.find import add_layout, open
from vonet.data.video import ArrayVideo, Video, Videos

__all__ = ["ArrayVideo", "Video", "Videos", "add_layout", "open"]
