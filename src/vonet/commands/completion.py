"""`vonet completion`: scripts that complete commands and options, made from the parser itself."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence

from vonet.errors import BadInput

Commands = Mapping[str, tuple[str, ArgumentParser]]
"""The description and the parser of each command."""

BASH = """\
_vonet() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words="" at=1
    while [ "${{COMP_WORDS[at]}}" = --with ]; do
        at=$((at + 2))
    done
    if [ "$COMP_CWORD" -eq "$at" ]; then
        words="{commands}"
    elif [ "${{word#-}}" != "$word" ]; then
        case "${{COMP_WORDS[at]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _vonet vonet"""

ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


ABOUT = "make your shell complete commands and options"
DESCRIPTION = (
    "Prints a script for your shell. bash: add `source <(vonet completion bash)` to ~/.bashrc; zsh: the same with zsh, "
    "in ~/.zshrc; fish: vonet completion fish > ~/.config/fish/completions/vonet.fish"
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", help="bash, zsh or fish")


def run(arguments: Namespace) -> None:
    from vonet.cli import commands_of, make_parser

    print(script(arguments.shell, commands_of(make_parser())))


def script(shell: str, commands: Commands) -> str:
    scripts = {"bash": _bash, "zsh": lambda commands: ZSH + _bash(commands), "fish": _fish}
    if shell not in scripts:
        raise BadInput(f"there is no completion for {shell!r}; there is for {', '.join(scripts)}")
    return scripts[shell](commands)


def _bash(commands: Commands) -> str:
    """The command comes after every `--with YOURS.py`. Where none of our completions fits, `-o default` completes file
    names."""
    cases = [f'            {name}) words="{" ".join(_options(own))}" ;;' for name, (_, own) in commands.items()]
    return BASH.format(commands=" ".join(commands), cases="\n".join(cases))


def _fish(commands: Commands) -> str:
    """`__fish_use_subcommand` would take the YOURS.py of `--with` for the command."""
    before = f"complete -c vonet -n 'not __fish_seen_subcommand_from {' '.join(commands)}'"
    lines = [f"{before} -l with -r -F -d 'a Python file with your own parts'"]
    for name, (about, own) in commands.items():
        lines.append(f"{before} -f -a {name} -d {_quoted(about)}")
        for option, told in _options(own).items():
            lines.append(
                f"complete -c vonet -n '__fish_seen_subcommand_from {name}' -l {option[2:]} -d {_quoted(told)}"
            )
    return "\n".join(lines)


def _options(parser: ArgumentParser) -> dict[str, str]:
    """The long name and the description of each option."""
    return {name: action.help or "" for action in parser._actions for name in _long(action.option_strings)}


def _long(names: Sequence[str]) -> Iterator[str]:
    return (name for name in names if name.startswith("--"))


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
