"""One writer per folder, and cells of CSV files."""

import csv
import errno
import fcntl
import io
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from vonet.errors import BadInput
from vonet.evaluation.protocol import SCORES
from vonet.evaluation.report import Report
from vonet.evaluation.run import MODEL, Row
from vonet.writing import LOCK, csv_cell, folder_written_aside, only_writer

HOLD = """
import sys, time
from pathlib import Path
from vonet.writing import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_is_told_who_the_first_is_until_that_one_dies(tmp_path):
    folder = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    words = rf"another process is writing to {folder} \(process {holder.pid} on \S+, since 20\d\d-.*\): wait until it"
    with pytest.raises(BadInput, match=words), only_writer(folder):
        pass
    assert list(folder.glob("*")) or (folder / LOCK).exists()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (folder / LOCK).exists()  # as after a power loss: the file alone locks nothing
    with only_writer(folder):
        (folder / "x").write_text("ours")
    assert [path.name for path in folder.iterdir()] == ["x"]


def test_a_lock_leaves_no_folder_that_it_made(tmp_path):
    with only_writer(tmp_path / "a/b"):
        assert (tmp_path / "a/b" / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_patient_writer_waits(tmp_path):
    order = []

    def first():
        with only_writer(tmp_path):
            order.append("first")
            time.sleep(0.3)
            order.append("first ends")

    thread = threading.Thread(target=first)
    thread.start()
    while not order:
        time.sleep(0.01)
    with only_writer(tmp_path, patience=20.0):
        order.append("second")
    thread.join()
    assert order == ["first", "first ends", "second"]


def test_many_writers_are_one_at_a_time(tmp_path):
    """Also while lock files are removed and made again."""
    inside, most = [], []

    def write():
        for _ in range(20):
            with only_writer(tmp_path, patience=60.0):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert max(most) == 1


def test_errors_of_the_writer_are_its_own(tmp_path):
    with pytest.raises(FileNotFoundError), only_writer(tmp_path / "run"):
        (tmp_path / "nowhere").read_text()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_warned_of_and_used(tmp_path, monkeypatch, capsys, code):
    def refuse(file, how):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with only_writer(tmp_path):
        (tmp_path / "x").write_text("")
    assert f"{tmp_path} cannot be locked ({os.strerror(code)}): make sure that no other" in capsys.readouterr().err


def test_a_result_is_not_taken_away_from_its_writer(tmp_path):
    with folder_written_aside(tmp_path / "result") as aside:
        with pytest.raises(BadInput, match="another process is writing"), folder_written_aside(tmp_path / "result"):
            pass
        (aside / "x").write_text("whole")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["result", "result/x"]


# Tables


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "-1.5.2"])
def test_text_that_a_spreadsheet_would_run_is_quoted(text):
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-1.5", "+3", "1e-3", "video 7", "", -1.5, 0, None, "a=b"])
def test_numbers_and_other_text_stay(value):
    assert csv_cell(value) is value


def test_names_of_videos_are_quoted_in_scores():
    row = Row(MODEL, "=HYPERLINK(1)", "-split", 0, 0, dict.fromkeys(SCORES, -1.5))
    (cells,) = list(csv.reader(io.StringIO(Report({}, [row], {})._csv_text())))[1:]
    assert cells[1:3] == ["'=HYPERLINK(1)", "'-split"]
    assert set(cells[5:]) == {"-1.5"}
