"""Training. Only `run` and `callbacks` use experiments; the other modules know models only through their interface."""
