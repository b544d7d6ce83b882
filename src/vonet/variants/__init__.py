"""Parts of our own, each of which may stand in the place of one of the paper's (`vonet.model`)."""
