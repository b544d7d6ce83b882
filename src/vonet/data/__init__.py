"""Where videos come from; knows nothing of models."""

from vonet.data.find import open
from vonet.data.video import Video, Videos

__all__ = ["Video", "Videos", "open"]
