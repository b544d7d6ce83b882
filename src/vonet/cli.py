"""The command line: the table of commands, and how the process ends."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import vonet
from vonet.commands.exit_codes import MISTAKE, STOPPED, UNREAD, leave
from vonet.commands.extensions import use
from vonet.errors import BadInput

COMMANDS = (
    "demo",
    "generate",
    "inspect",
    "prepare",
    "train",
    "list",
    "evaluate",
    "segment",
    "export",
    "push",
    "report",
    "figures",
    "compare",
    "reproduce",
    "completion",
)
"""Each command is a file in commands/."""

RENAMED = {
    r"unrecognized arguments:.* --sure-above\b": "--sure-above is now --min-probability",
    r"invalid choice: 'experiments'": "the command experiments is now list: use vonet list",
}
"""What the parser says of options and commands that were renamed, and what users see instead."""

HELP = """\
usage: vonet [--with YOURS.py] COMMAND [OPTION...]

Find objects in videos, without labels. Start with:
  vonet demo                              see a small model learn, in minutes
  vonet segment clip.mp4                  find the objects of your own video
  vonet train vonet-sprites --data DATA   train on videos

commands:
{commands}
vonet COMMAND --help says more. Exit codes: 0 done, 2 a mistake, 130 stopped.
"""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command with the given arguments; by default those of the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows few letters is no reason to stop
    try:
        try:
            parser = make_parser()
            if words is None and len(sys.argv) == 1:
                print(parser.format_help(), end="", file=sys.stderr)
                sys.exit(MISTAKE)
            arguments = parser.parse_args(words)
            for file in arguments.files:
                use(file)
            arguments.run(arguments)
        finally:
            sys.stdout.flush()
    except BadInput as error:
        leave(MISTAKE, str(error))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is leaving: a second Ctrl-C must not disturb that
        leave(STOPPED, "stopped")
    except BrokenPipeError:  # whoever read our output, such as `head`, has seen enough
        _stop_printing()
        sys.exit(UNREAD)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        _stop_printing()
        leave(MISTAKE, f"the output cannot be written ({error.strerror}): make room, or print elsewhere")


def _stop_printing() -> None:
    """Redirect pending output to the null device; otherwise Python would try to write it again at exit and report an
    error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """A parser whose help fits on one screen and begins with what a newcomer needs."""

    def format_help(self) -> str:
        listed = commands_of(self)
        width = max(map(len, listed)) + 2
        return HELP.format(commands="\n".join(f"  {name:{width}}{about}" for name, (about, _) in listed.items()))

    def error(self, message: str) -> NoReturn:
        """End with a message; one about a former name gives the present one."""
        super().error(next((now for former, now in RENAMED.items() if re.search(former, message)), message))


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; `arguments.run` is the function of the chosen one."""
    parser = _Parser(prog="vonet")
    parser.add_argument("--version", action="version", version=f"vonet {vonet.__version__}")
    parser.add_argument("--with", dest="files", type=Path, action="append", default=[], metavar="YOURS.py")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=argparse.ArgumentParser)
    for name in COMMANDS:
        command = importlib.import_module(f"vonet.commands.{name}")
        own = commands.add_parser(name, help=command.ABOUT, description=command.DESCRIPTION)
        command.add_options(own)
        own.set_defaults(run=command.run)
    return parser


def commands_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Each command with its description and its parser."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    about = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    return {name: (about[name], own) for name, own in commands.choices.items()}
