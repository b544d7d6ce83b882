"""The list of mutations fits the code. `make mutants` runs them."""

import ast

import pytest

from tests.mutants import MUTATIONS, ROOT, SOURCE, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
def test_every_mutation_can_be_applied(mutation):
    text = (SOURCE / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1, f"adapt the entry in tests/mutants.py to {mutation.file}"
    assert mutation.new != mutation.old
    ast.parse(text.replace(mutation.old, mutation.new))
    for test in mutation.tests.split():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_there_are_at_least_forty():
    assert len(MUTATIONS) >= 40
    assert len({mutation.what for mutation in MUTATIONS}) == len(MUTATIONS)


def test_an_entry_that_no_longer_fits_is_a_sentence(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for old, times in (("x = 1", 2), ("y", 0)):
        with pytest.raises(SystemExit, match=rf"occurs {times} times in a.py, expected once: adapt the entry"):
            Mutation("it", "a.py", old, "z", "").applied(tmp_path)
    Mutation("it", "a.py", "x = 1\nx = 1", "x = 2", "").applied(tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 2\n"
