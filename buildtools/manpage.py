"""The manual page of the command ``ags1``, made from its parsers; ``python -m buildtools.manpage`` prints the page."""

from __future__ import annotations

import re
import sys
from argparse import Action
from collections.abc import Iterator

from ags1.cli.parser import CommandParser, whole_parser
from ags1.version import version


def escaped(words: str) -> str:
    """Return text for roff: no character of it is a request or an escape."""
    for character, escape in (("\\", r"\e"), ("-", r"\-"), ("'", r"\(aq"), ("`", r"\(ga")):
        words = words.replace(character, escape)
    return re.sub(r"^(?=\.)", r"\\&", words, flags=re.MULTILINE)


def arguments(parser: CommandParser, actions: list[Action]) -> Iterator[str]:
    """Give each argument and option, and what it means; `-h` is not repeated for every command."""
    formatter = parser._get_formatter()
    for action in actions:
        if action.dest != "help" and action is not parser._commands:
            called = formatter._format_action_invocation(action)
            yield f".TP\n.B {escaped(called)}\n{escaped(formatter._expand_help(action))}"


def section(parser: CommandParser, on_spark: CommandParser | None) -> Iterator[str]:
    """Give a command with its arguments and its commands; of its form on Spark, the options that only that form has."""
    yield f"{escaped(parser.description or '')}"
    yield from arguments(parser, parser._actions)
    known = {*parser.options(), ""}
    others = [] if on_spark is None else [each for each in on_spark._actions if each.option_strings]
    if more := [each for each in others if each.option_strings[-1] not in known]:
        assert on_spark is not None
        yield from [".PP\nWith \\-\\-spark also:", *arguments(on_spark, more)]
    yield f".PP\n.nf\n{escaped((parser.epilog or '').strip())}\n.fi"
    forms = {} if on_spark is None else on_spark.choices()
    for name, command in (forms | parser.choices()).items():
        usage = re.sub(r"\s+", " ", command.format_usage().removeprefix("usage: ")).strip()
        yield f".SS {escaped(command.prog)}\n.B {escaped(usage)}\n.PP"
        yield from section(command, forms.get(name))


def page() -> str:
    """Return the page."""
    head = f'.TH AGS1 1 "" "ags1 {version}" "User Commands"\n.SH NAME\nags1 \\- encrypt and read data\\-lake files'
    body = section(whole_parser(), whole_parser(on_spark=True))
    return "\n".join([head, ".SH SYNOPSIS\n.B ags1\n.I COMMAND\n[arguments]\n.SH DESCRIPTION", *body, ""])


if __name__ == "__main__":
    sys.stdout.write(page())
