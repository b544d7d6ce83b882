"""The streaming segmenter and its output files."""
