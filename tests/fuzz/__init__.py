"""Mutated files for every reader of the package: each must be read or refused with a sentence.

`make fuzz` runs 100,000 inputs; `tests/test_fuzz.py` runs 5,000 of the same. Input number n is always the same one:
`python -m tests.fuzz --only n` repeats it and prints where it failed.
"""
