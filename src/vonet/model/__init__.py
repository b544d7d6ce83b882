"""The paper's method, one file per box of its figure."""
