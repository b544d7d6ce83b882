"""The documentation reports what lies in results/, and nothing else."""

import re

from results import __main__ as results
from vonet import experiments


def test_the_pages_have_the_tables_of_the_recorded_scores():
    for page, tables in results.tables().items():
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"<!-- results (.*) -->", text) == list(tables)
        for name, table in tables.items():
            assert results.with_table(text, name, table) == text


def test_experiments_say_what_was_measured():
    """`vonet list` and `vonet reproduce` go by these."""
    found = results.folders(results.HERE)
    assert {folder.name for folder in found} == {*results.OTHERS, "vonet-sprites", "vonet-closeup"}
    for folder in found:
        seeds = results.seeds_of(folder)
        for name, expected in experiments.get(folder.name).measured.items():
            method, score = ("offline", name.removeprefix("offline_")) if "offline" in name else ("model", name)
            assert abs(expected - 100 * sum(seed[method, score] for seed in seeds) / len(seeds)) < 0.051
