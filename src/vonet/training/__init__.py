"""Training. Only `run` and `callbacks` know experiments; the rest knows models by their contract."""
