"""Layers that at least two methods share. Imports no method."""
