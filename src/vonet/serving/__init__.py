"""The streaming segmenter, and the files it writes."""
