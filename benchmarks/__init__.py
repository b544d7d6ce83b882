"""Commands that measure speed and memory as ratios in one run: machines differ and are noisy, ratios less so.

`make bench` runs all of them, prints what they compare, and writes `bench.json` and the paper's efficiency figure,
`bench-attention.pdf` and `.png` (and its data, `.json`, from which `vonet figures` draws it too). The plain forms
are those that the tests hold the fast ones against (`tests/plain.py`).
"""
