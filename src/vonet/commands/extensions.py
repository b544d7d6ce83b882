"""`vonet --with YOURS.py COMMAND`: users' Python files that add models, video layouts and scores.

Only a file that is named on the command line is ever run. Weights and descriptions on disk name parts and contain no
code.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from vonet.errors import BadInput


def use(path: Path) -> None:
    """Run a file, once. It is imported under its own name, and its folder becomes the last entry of the module search
    path. So it may import its neighbours, worker processes find what it defines, and it hides no other module."""
    file = path.resolve()
    if file.suffix != ".py" or not file.is_file():
        raise BadInput(f"{path} is not a Python file; give the file with your own parts: vonet --with YOURS.py COMMAND")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    try:
        module = importlib.import_module(file.stem)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{path} cannot be used{_line(error, file)}: {type(error).__name__}: {error}") from error
    if Path(module.__file__ or "").resolve() != file:
        raise BadInput(f"{path} has the name of another module, {module.__name__}: rename it")


def _line(error: Exception, file: Path) -> str:
    """The line of the file where the error occurred, if it was in this file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return f" (line {lines[-1]})" if lines else ""
