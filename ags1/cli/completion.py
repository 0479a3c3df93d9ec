"""``ags1 completion``: what a shell completes, made by shtab from the parsers themselves."""

from __future__ import annotations

from ags1.cli.command import Positional, command
from ags1.cli.output import say
from ags1.cli.parser import CommandParser, whole_parser

# What stands for files; anything else that has no choices is not completed.
_FILES = frozenset(("SOURCE", "TARGET", "FILE", "LIST", "KEYFILE", "DATASET", "TABLE", "PATH", "LOCATION"))


@command(shell=Positional("SHELL", "bash, zsh, fish or tcsh", choices=("bash", "zsh", "fish", "tcsh")))
def completion(shell: str) -> int:
    """~/.zfunc, or where you keep such functions, must be in fpath of zsh.

    examples:
      ags1 completion bash > ~/.local/share/bash-completion/completions/ags1
      ags1 completion zsh > ~/.zfunc/_ags1
      ags1 completion fish > ~/.config/fish/completions/ags1.fish

    It needs shtab: pip install 'ags1[cli]'
    """
    try:
        import shtab
    except ImportError:
        raise ImportError("shell completion needs shtab: pip install 'ags1[cli]'") from None
    parser = whole_parser()
    _complete_files(parser, shtab.FILE)
    say(shtab.complete(parser, shell), raw=True)
    return 0


def _complete_files(parser: CommandParser, files: object) -> None:
    for action in parser._actions:
        if isinstance(action.metavar, str) and action.metavar in _FILES:
            action.complete = files  # type: ignore[attr-defined]
    for each in parser.choices().values():
        _complete_files(each, files)
