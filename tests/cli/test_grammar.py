"""One grammar: an option is the same in every command, exit codes are one table, examples paste into any shell."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from ags1.cli.parser import CommandParser, parse, whole_parser
from ags1.support.exit_codes import EXIT_CODES
from tests.cli.conftest import Run

# One flag that takes another value in a command that cannot mistake it.
OTHER_VALUES = {"--new-key-id", "--keep", "--ref", "--property", "--version"}
# Places, for which a word is enough, as in FILE: a file.
TERSE = {"key_id", "command", "action", "help", "files", "source", "target", "table", "shell"}


def parsers() -> Iterator[CommandParser]:
    """Every parser with options."""
    for on_spark in (False, True):
        root = whole_parser(on_spark=on_spark)
        yield root
        for each in root.choices().values():
            yield each
            yield from each.choices().values()


EXAMPLES = [
    line.strip()
    for parser in parsers()
    for line in (parser.epilog or "").replace("\\\n", " ").splitlines()
    if re.match(r"  (ags1|tar|spark-submit|export) ", line)
]


def test_an_option_has_one_kind_of_value_in_all_commands() -> None:
    found: dict[str, set[object]] = {}
    for parser in parsers():
        for action in parser._actions:
            for flag in action.option_strings:
                found.setdefault(flag, set()).add(action.metavar if action.nargs != 0 else None)
    assert {flag for flag, kinds in found.items() if len(kinds) > 1} <= OTHER_VALUES


def test_an_option_stands_under_the_title_that_says_what_it_is_about() -> None:
    titles: dict[str | None, set[str]] = {}
    for parser in commands():
        for group in parser._action_groups:
            flags = {flag for action in group._group_actions for flag in action.option_strings}
            titles.setdefault(group.title, set()).update(flags)
    for title, wanted in (
        ("what stays", ("--older-than", "--keep", "--grace", "--orphans-older-than")),
        ("files of the table", ("--sort-by", "--target-size", "--rewrite-all", "--statistics")),
        ("version", ("--version", "--snapshot", "--ref", "--as-of")),
    ):
        assert set(wanted) <= titles[title]
        assert [name for name, found in titles.items() if name != title and not found.isdisjoint(wanted)] == []


def test_the_help_of_an_option_says_more_than_a_word_or_that_it_is_the_same() -> None:
    helps = {(parser.prog, action.dest, action.help or "") for parser in parsers() for action in parser._actions}
    terse = [each for each in helps if len(each[2].split()) < 3 or each[2].startswith(("the same", "of ", "may be"))]
    assert [each for each in terse if each[1] not in TERSE] == []


def test_where_nothing_is_said_the_dataset_comes_first_and_the_source_before_the_target() -> None:
    for action, parser in whole_parser().choices()["dataset"].choices().items():
        places = [each.metavar for each in parser._actions if not each.option_strings]
        assert places[0] == ("SOURCE" if action == "encrypt" else "DATASET")
    for parser in parsers():
        places = [each.metavar for each in parser._actions if not each.option_strings]
        if "SOURCE" in places and "TARGET" in places:
            assert places.index("SOURCE") < places.index("TARGET")


def test_the_exit_codes_are_one_table(run: Run) -> None:
    assert EXIT_CODES in run("--help").out
    assert EXIT_CODES in run("--spark", "--help").out


def commands() -> Iterator[CommandParser]:
    """Every command but those that stand for others."""
    for parser in whole_parser().choices().values():
        yield from parser.choices().values() or (parser,)


@pytest.mark.parametrize("parser", list(commands()), ids=lambda parser: parser.prog)
def test_every_command_has_an_example_and_what_can_be_long_has_a_bar(parser: CommandParser) -> None:
    assert re.search(rf"\bexamples:\n(?:.*\n)*  .*{parser.prog}\b", parser.epilog or "")
    examples = (parser.epilog or "").partition("examples:\n")[2]
    assert max(map(len, examples.splitlines())) <= 80, "a line that is wrapped cannot be pasted"
    action = parser.prog.partition(" ")[2]
    # A key or a line, one call of a service, and what shows rows as it measures.
    group = parser.prog.split()[1]
    if action not in ("keygen", "info", "bench", "completion") and group != "kms":
        assert "--progress" in parser.options()
    # Bytes, rows with --format, and what is itself the input of another program.
    rows = ("iceberg files", "iceberg scan", "parquet cat", "parquet head")
    if action not in ("keygen", "cat", "dataset cat", "iceberg cat", "completion", *rows) and group != "kms":
        assert "--json" in parser.options()


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_help_pastes_into_any_shell(example: str) -> None:
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", example)
    # What zsh would expand or refuse, and what a terminal's shell does not take for a comment.
    assert not re.search(r"[?*\[\]{}()#!~^&<]", bare.replace("~/.", "")), bare
    for shell in filter(None, map(shutil.which, ("dash", "bash", "zsh"))):
        subprocess.run([shell, "-n", "-c", example], check=True)


@pytest.mark.parametrize("example", [each for each in EXAMPLES if "ags1 " in each])
def test_an_example_of_help_is_a_command(example: str) -> None:
    for part in re.split(r" (?:\|\|?|>) ", re.sub(r"amount > 10", "amount = 10", example)):
        words = shlex.split(part)
        if words[:1] != ["ags1"]:
            continue
        parse(words[1:])
