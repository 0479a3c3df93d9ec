"""``ags1 completion``: what a shell completes, made by shtab from the parsers themselves."""

from __future__ import annotations

import argparse

from ags1.cli import say
from ags1.support.command_line import CommandParser

# What stands for files; anything else that has no choices is not completed.
_FILES = frozenset(("SOURCE", "TARGET", "FILE", "LIST", "KEYFILE", "DATASET", "TABLE", "PATH", "LOCATION"))


def completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise ImportError("shell completion needs shtab: pip install 'ags1[cli]'") from None
    parser = _whole()
    _complete_files(parser, shtab.FILE)
    say(shtab.complete(parser, options.shell), raw=True)
    return 0


def _whole() -> CommandParser:
    """The parser of all commands, with the actions of those that have a parser of their own."""
    from ags1.cli.grammar import dataset_parser, iceberg_parser, parquet_parser
    from ags1.cli.grammar import parser as grammar_parser

    parser = grammar_parser.command_parser()
    for group in (dataset_parser.command_parser(), iceberg_parser.command_parser(), parquet_parser.command_parser()):
        parser.replace_command(group.prog.partition(" ")[2], group)
    return parser


def _complete_files(parser: CommandParser, files: object) -> None:
    for action in parser._actions:
        if isinstance(action.metavar, str) and action.metavar in _FILES:
            action.complete = files  # type: ignore[attr-defined]
    for command in parser.choices().values():
        _complete_files(command, files)
