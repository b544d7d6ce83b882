"""How a model learns; knows models only by their contract."""
