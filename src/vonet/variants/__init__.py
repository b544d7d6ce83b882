"""Our own replacements for parts of the paper's model (`vonet.model`)."""
