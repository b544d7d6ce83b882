"""Where videos come from; knows nothing of models."""
