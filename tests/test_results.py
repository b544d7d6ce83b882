"""The README reports what lies in results/, and nothing else."""

from results import __main__ as results
from vonet import experiments


def test_the_pages_have_the_tables_of_the_recorded_scores():
    pages = {
        results.README: results.table(),
        results.ABLATIONS: results.ablation_table(),
        results.METHODS_PAGE: results.methods_table(),
    }
    for page, table in pages.items():
        text = page.read_text(encoding="utf-8")
        assert results.with_table(text, table) == text


def test_experiments_say_what_was_measured():
    """`vonet list` and `vonet reproduce` go by these."""
    known = [folder for folder in results.folders(results.HERE) if folder.name in experiments.names()]
    assert len(known) >= 2  # others are of these, scored on other videos
    for folder in known:
        seeds = results.seeds_of(folder)
        for name, expected in experiments.get(folder.name).measured.items():
            method, score = ("offline", name.removeprefix("offline_")) if "offline" in name else ("model", name)
            assert abs(expected - 100 * sum(seed[method, score] for seed in seeds) / len(seeds)) < 0.051
