"""5,000 mutated files, and every one of them is read or refused with a sentence (`make fuzz` reads 100,000)."""

from tests.fuzz import campaign


def test_mutated_files_are_read_or_refused():
    table = campaign.run(range(5000))
    assert not table.failures, "\n".join(map(str, table.failures[:20]))
    assert table.total("read", "refused") == 5000
    for reader, count in table.counts.items():
        assert count["read"] > 0, f"no mutation of {reader} is harmless, so perhaps nothing is read"
        if reader != "log.jsonl":  # of which damaged lines are left out
            assert count["refused"] > 0, f"no mutation of {reader} does harm, so perhaps nothing is mutated"


def test_the_harness_notices_what_must_not_happen(tmp_path):
    """A reader that fails, calls programs, reads elsewhere or never ends."""
    import os
    import random

    watch = campaign.Watch(tmp_path)

    class Reader:
        def __init__(self, run):
            self.run = run

        def write(self, rng, folder):
            assert isinstance(rng, random.Random)
            return folder

        def restore(self, changed, folder):
            pass

    def endless(folder, changed):
        while True:
            pass

    def outside(folder, changed):
        open("/etc/passwd").close()

    cases = {
        "traceback": lambda folder, changed: 1 / 0,
        "executed": lambda folder, changed: os.system("true"),
        "hang": endless,
        "read": lambda folder, changed: None,
    }
    limit, campaign.SECONDS = campaign.SECONDS, 0.2
    try:
        for outcome, run in cases.items():
            assert campaign.attempt(Reader(run), tmp_path, 0, watch)[0] == outcome
        assert campaign.attempt(Reader(outside), tmp_path, 0, watch)[0] == "executed"
    finally:
        campaign.SECONDS = limit
