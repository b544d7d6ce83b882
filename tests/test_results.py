"""The documentation reports what lies in results/, and nothing else."""

import json
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
    assert {folder.name for folder in found} == {*results.OTHERS, "vonet-sprites", *results.LEARNED}
    for folder in found:
        seeds = results.seeds_of(folder)
        for name, expected in experiments.get(folder.name).measured.items():
            method, score = ("offline", name.removeprefix("offline_")) if "offline" in name else ("model", name)
            assert abs(expected - 100 * sum(seed[method, score] for seed in seeds) / len(seeds)) < 0.051


def test_the_recorded_tracking_scores_are_those_of_the_experiment():
    for experiment, files in (("vonet-spmot", "seed*.json"), ("vonet-spmot-quick", "quick*.json")):
        paths = sorted((results.HERE / "vonet-spmot").glob(files))
        scores = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        assert len(scores) >= 2
        kinds = {(one["experiment"], one["protocol"], one["split"], one["videos"]) for one in scores}
        assert kinds == {(experiment, "spmot", "test", 1000)}
        for name, expected in experiments.get(experiment).measured.items():
            assert abs(expected - sum(one[name] for one in scores) / len(scores)) < 0.051
