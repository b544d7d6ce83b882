"""Runs inputs in a child process with limits of memory and time, and counts what became of them."""

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

OUTCOMES = ("read", "refused", "traceback", "hang", "executed", "crash")
GOOD = ("read", "refused")
SECONDS = 5.0
"""Of processor time for one input, so that a busy machine makes no difference."""
PATIENCE = 300.0
"""Seconds after which a child that says nothing is ended."""
MEMORY = 1 << 30
"""Bytes that the child may take on top of what its imports took."""
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pickle.find_class")
ROOT = Path(__file__).parents[2]


class TooLong(BaseException):
    """Not an Exception, so that no reader takes it for a damaged file."""


class Executed(BaseException):
    """The same for what must not happen while a file is read."""


@dataclass
class Table:
    """Outcomes by reader, and what failed: number, outcome and where."""

    counts: dict[str, Counter] = field(default_factory=lambda: defaultdict(Counter))
    failures: list[tuple[int, str, str, str]] = field(default_factory=list)

    def add(self, number: int, reader: str, outcome: str, detail: str) -> None:
        self.counts[reader][outcome] += 1
        if outcome not in GOOD:
            self.failures.append((number, reader, outcome, detail))
            print(f"input {number} ({reader}): {outcome}, {detail}", file=sys.stderr, flush=True)

    def total(self, *outcomes: str) -> int:
        return sum(count[outcome] for count in self.counts.values() for outcome in outcomes)

    def __str__(self) -> str:
        rows = [["reader", "inputs", *OUTCOMES]]
        for reader, count in self.counts.items():
            rows.append([reader, count.total(), *(count[outcome] for outcome in OUTCOMES)])
        rows.append(["all", self.total(*OUTCOMES), *(self.total(outcome) for outcome in OUTCOMES)])
        texts = [[row[0], *(f"{cell:,}" if isinstance(cell, int) else cell for cell in row[1:])] for row in rows]
        head, *rest = ["| " + " | ".join(row) + " |" for row in texts]
        return "\n".join([head, "|" + " -- |" * len(texts[0]), *rest])


def run(numbers: range, progress: bool = False) -> Table:
    """All inputs of these numbers. A child that crashes or hangs is replaced by another one."""
    table, left = Table(), list(numbers)
    begun, said = time.monotonic(), time.monotonic()
    while left:
        with Child(left) as child:
            while left:
                answer = child.answer()
                if answer is None:
                    table.add(left[0], child.reader or "?", child.end, "the child ended")
                    left.pop(0)
                    break
                if answer["number"] is None:
                    continue
                table.add(**answer)
                left.pop(0)
                if progress and time.monotonic() - said > 30:
                    said = time.monotonic()
                    done = len(numbers) - len(left)
                    print(f"{done} of {len(numbers)} inputs, {done / (said - begun):.0f} per second", file=sys.stderr)
    return table


class Child:
    """A process that runs inputs and writes a line before and after each."""

    def __init__(self, numbers: list[int]):
        in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # writing every input to a disk takes long
        self._scratch = tempfile.TemporaryDirectory(dir=in_memory)
        command = [sys.executable, "-m", "tests.fuzz", "--child", self._scratch.name]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(numbers).encode() + b"\n")
        self._process.stdin.close()
        self.reader, self.end = "", "crash"

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._scratch.cleanup()

    def answer(self) -> dict | None:
        """The next line: an outcome, or (with number None) that an input has begun; None if no line comes."""
        out = self._process.stdout
        assert out is not None
        if not out.peek(1)[:1] and not select.select([out], [], [], PATIENCE)[0]:
            self.end = "hang"
            return None
        line = out.readline()
        if not line:
            return None
        answer = json.loads(line)
        self.reader = answer["reader"]
        return answer


def serve(scratch: Path) -> None:
    """The child: reads the numbers from its input and writes outcomes."""
    from tests.fuzz.readers import readers

    numbers = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr  # whatever a reader prints
    made = readers(scratch / "valid")
    watch = Watch(scratch)
    for place, reader in enumerate(made):
        folder = scratch / str(place)
        folder.mkdir()
        reader.prepare(folder)
        reader.run(folder)  # valid files are read; what is imported late is imported now
        reader.prepare(folder)
    limit_memory()
    by_share = [place for place, reader in enumerate(made) for _ in range(reader.share)]
    assert len(by_share) == 100
    for number in numbers:
        place = by_share[number * 37 % 100]
        reader, folder = made[place], scratch / str(place)
        print(json.dumps({"number": None, "reader": reader.name}), file=answers)
        outcome, detail = attempt(reader, folder, number, watch)
        found = {"number": number, "reader": reader.name, "outcome": outcome, "detail": detail}
        print(json.dumps(found), file=answers)


def attempt(reader, folder: Path, number: int, watch: "Watch") -> tuple[str, str]:
    """What becomes of one input, and where it failed."""
    changed = reader.write(random.Random(f"vonet {number}"), folder)
    outcome, detail = "read", ""
    try:
        with watch:
            reader.run(folder, changed)
    except TooLong as error:
        outcome, detail = "hang", _where(error)
    except Executed as error:
        outcome, detail = "executed", f"{error} {_where(error)}"
    except Exception as error:
        from vonet.errors import BadInput

        sentence = str(error)
        is_sentence = isinstance(error, BadInput) and sentence.strip() and "\n" not in sentence
        outcome, detail = ("refused", sentence[:200]) if is_sentence else ("traceback", _where(error))
    reader.restore(changed, folder)
    return outcome, detail


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/vonet/" in frame.filename] or frames
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(ours[-3:]))
    return f"{type(error).__name__}: {str(error)[:200]} at {places}"


class Watch:
    """While it is entered, an alarm limits the time, and calls of programs or files outside the folder are noticed."""

    def __init__(self, scratch: Path):
        self._on = False
        self._outside = {"/etc/passwd", "/proc/self/environ", str(scratch / "canary"), str(scratch.parent / "canary")}
        (scratch / "canary").write_bytes(bytes(4096))
        signal.signal(signal.SIGPROF, self._alarm)
        sys.addaudithook(self._audit)

    def __enter__(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        self._on = True

    def __exit__(self, *_: object) -> None:
        self._on = False
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _alarm(self, number: int, frame: object) -> None:
        raise TooLong

    def _audit(self, event: str, arguments: tuple) -> None:
        if not self._on:
            return
        if event in FORBIDDEN:
            raise Executed(event)
        if event == "open" and isinstance(arguments[0], str) and os.path.realpath(arguments[0]) in self._outside:
            raise Executed(f"opened {arguments[0]}")


def limit_memory() -> None:
    """From now on, at most `MEMORY` more."""
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
