"""The README reports what lies in results/, and nothing else."""

from results import __main__ as results
from vonet import experiments


def test_the_readme_has_the_table_of_the_recorded_scores():
    readme = results.README.read_text(encoding="utf-8")
    assert results.with_table(readme) == readme


def test_experiments_say_what_was_measured():
    """`vonet list` and `vonet reproduce` go by these."""
    for folder in results.HERE.iterdir():
        if seeds := [results.scores_of(path) for path in folder.glob("seed*.csv")]:
            for name, said in experiments.get(folder.name).measured.items():
                method, score = ("offline", name.removeprefix("offline_")) if "offline" in name else ("model", name)
                assert abs(said - 100 * sum(seed[method, score] for seed in seeds) / len(seeds)) < 0.051
