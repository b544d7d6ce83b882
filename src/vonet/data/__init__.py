"""Reading, generating and storing videos. Imports no torch and no model."""

from vonet.data.find import add_layout, open
from vonet.data.video import ArrayVideo, Video, Videos

__all__ = ["ArrayVideo", "Video", "Videos", "add_layout", "open"]
