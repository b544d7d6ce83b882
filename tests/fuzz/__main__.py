"""`python -m tests.fuzz`: every reader on mutated files, and the table of outcomes."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz import campaign


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--start", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", type=int, help="run this input here and show its traceback")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        campaign.serve(arguments.child)
        return
    if arguments.only is not None:
        show(arguments.only)
        return
    table = campaign.run(range(arguments.start, arguments.start + arguments.inputs), progress=True)
    print(table)
    sys.exit(bool(table.failures))


def show(number: int) -> None:
    """One input without limits, so that the whole traceback is seen."""
    import random

    from tests.fuzz.readers import readers

    with tempfile.TemporaryDirectory() as scratch:
        made = readers(Path(scratch) / "valid")
        by_share = [reader for reader in made for _ in range(reader.share)]
        reader, folder = by_share[number * 37 % 100], Path(scratch) / "input"
        reader.prepare(folder)
        changed = reader.write(random.Random(f"vonet {number}"), folder)
        content = changed.read_bytes()[:2000] if changed.exists() else None
        print(f"{reader.name}: {changed.relative_to(folder)} is {content!r}")
        reader.run(folder, changed)


if __name__ == "__main__":
    main()
