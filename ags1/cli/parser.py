"""The arguments of a command line: which command of the table is meant, its options, and helpful errors."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from functools import partial

from ags1.cli.command import Command
from ags1.cli.options import EXCLUSIVE, options_named
from ags1.cli.table import COMMANDS, SPARK_EPILOG, CommandGroup
from ags1.support.exit_codes import UsageError
from ags1.support.typing import Any, NoReturn

# Columns of help at most: longer lines are hard to read.
_WIDEST = 100
# What is left of 80 columns beside "usage: ".
_USAGE_COLUMNS = 72
_INVALID_CHOICE = ": invalid choice: "


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; `run` of the result calls the command with them.

    UsageError: they make no sense; no value that might be a key is shown. SystemExit: help or the version was shown.
    """
    on_spark = "--spark" in arguments[: arguments.index("--") if "--" in arguments else None]
    words = [each for each in arguments if not (on_spark and each == "--spark")]
    if words[:1] == ["--version"]:
        from ags1.version import version

        print(f"ags1 {version}")
        raise SystemExit(0)
    group = COMMANDS
    while True:
        if words[:1] == ["help"]:
            words = [*words[1:2], "--help"]
        inner = group.commands.get(words[0]) if words else None
        if not isinstance(inner, CommandGroup) or (on_spark and not inner.has_cluster_form):
            break
        group, words = inner, words[1:]
    return _parser_of(group, words[0] if words else "", on_spark).parse(words)


def _run_on_spark(name: str, options: argparse.Namespace) -> int:
    from ags1.cli.cluster import run_on_spark

    return run_on_spark(name, options.called.spark, options)


def whole_parser(*, on_spark: bool = False) -> CommandParser:
    """Return the parser of all commands, with all options."""
    return _parser_of(COMMANDS, None, on_spark)


def _parser_of(group: CommandGroup, only: str | None, on_spark: bool) -> CommandParser:
    """The parser of a group, with the options of one of its commands, or with None, of all."""
    epilog = SPARK_EPILOG if on_spark and group is COMMANDS else group.epilog
    parser = CommandParser(
        prog=group.prog,
        what=group.what,
        on_spark=on_spark,
        hints=group.hints,
        description=group.description,
        epilog=epilog if isinstance(epilog, str) else epilog(),
    )
    if group is COMMANDS:
        parser.add_argument("--version", action="store_true", help="show the version and exit")
    for name, entry in group.commands.items():
        if on_spark and not entry.has_cluster_form:
            continue
        if isinstance(entry, CommandGroup):
            parser.add_command(name, entry.summary)
            if only is None:
                parser.replace_command(name, _parser_of(entry, None, on_spark))
        else:
            parser.add_command(name, entry.summary, group.load(name) if only in (None, name) else None)
    return parser


class CommandParser(argparse.ArgumentParser):
    """A parser that raises, and that suggests the command that was probably meant.

    `what` is the name for its commands in help and in messages; `hints` are what to say of options that none has. With
    `on_spark`, it has the commands with ``--spark`` alone.
    """

    def __init__(self, *, what: str = "COMMAND", on_spark: bool = False, hints: Any = (), **settings: Any) -> None:
        super().__init__(formatter_class=Formatter, allow_abbrev=False, **settings)
        self._on_spark = on_spark
        self._what = what
        self._hints = dict(hints)
        self._help_options = "--spark --help" if on_spark else "--help"
        self._commands: Any = None

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError with the message; for an unknown command, it lists the commands."""
        what, choice, given = message.partition(_INVALID_CHOICE)
        known = list(self.choices())
        name, _, others = given.partition(" (choose from ")
        name = name.strip("'\"")
        if choice and known and what == f"argument {self._what}":
            where = " on Spark" if self._on_spark else ""
            message = f"there is no such {self._what.lower()}{where}; {_meant(name, known)}there are {', '.join(known)}"
        elif choice:
            meant = _meant(name, [each.strip("'\")") for each in others.split(", ")])
            message = f"{message}; {meant}".rstrip("; ")
        raise UsageError(f"{message} (see `{self.prog} {self._help_options}`)")

    def choices(self) -> dict[str, CommandParser]:
        """The parsers of its commands, by their names."""
        return {} if self._commands is None else dict(self._commands.choices)

    def replace_command(self, name: str, parser: CommandParser) -> None:
        """Replace the parser of a command."""
        self._commands.choices[name] = parser

    def options(self) -> list[str]:
        """The long names of its options."""
        return [name for name in self._option_string_actions if name.startswith("--")]

    def add_command(self, name: str, summary: str, command: Command | None = None) -> None:
        """Add a command; without `command`, what it is called and what it is for."""
        if self._commands is None:
            # Without `prog`, argparse formats a usage text to find it, and imports half of shutil for that.
            self._commands = self.add_subparsers(
                title=f"{self._what.lower()}s", metavar=self._what, dest=self._what.lower(), prog=self.prog
            )
        parser = self._commands.add_parser(name, help=summary, on_spark=self._on_spark)
        if command is not None:
            parser.take(command, summary)

    def take(self, command: Command, summary: str) -> None:
        """Take the arguments and the help of a command."""
        on_spark = self._on_spark
        places, names = list(command.places(on_spark=on_spark)), command.options(on_spark=on_spark)
        description, below = command.texts(on_spark=on_spark)
        self.description = f"{summary[0].upper()}{summary[1:]}. {' '.join(description.split())}".strip()
        self.epilog = below or None
        self.set_defaults(called=command)
        for dest, place in places:
            self.add_argument(dest, metavar=place.name.strip("[.]"), help=place.text, **place.settings)
        needed = self._add_options(names, command.changed(on_spark=on_spark))
        needs = [f"{each.option_strings[-1]} {each.metavar}" for each in needed]
        needs += filter(None, [command.needs(on_spark=on_spark)])
        usage = " ".join([self.prog, *(place.name for _, place in places)])
        ways = " ".join([*needs, *(["[options]"] if names else [])])
        gap = "\n           " if len(usage) + len(ways) > _USAGE_COLUMNS else " "
        self.usage = f"{usage}{gap}{ways}".rstrip()

    def _add_options(self, names: str, changed: dict[str, dict[str, Any]]) -> list[argparse.Action]:
        """Add options, each to its section of the help, and return those that are required."""
        found = list(options_named(names))
        given = {name for name, _, _ in found}
        groups: dict[Any, Any] = {}
        needed = []
        for name, option, is_required in found:
            if option.section not in groups:
                groups[option.section] = self.add_argument_group(option.section)
            group = groups[option.section]
            others = next((each for each in EXCLUSIVE if name in each), ())
            if len(given.intersection(others)) > 1:
                if others not in groups:
                    groups[others] = group.add_mutually_exclusive_group()
                group = groups[others]
            action = group.add_argument(*option.flags, **option.settings | changed.get(name, {}))
            if is_required:
                needed.append(action)
        # argparse would check required options before unknown ones, which may be keys.
        self.set_defaults(needed=needed)
        return needed

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments. Files may stand behind options.

        UsageError: the arguments are invalid; the message shows no value that might be a key. SystemExit: help was
        shown, as without any command.
        """
        options, rest = self.parse_known_args(arguments)
        name = vars(options).pop(self._what.lower())
        if name is None:
            if rest:
                self._refuse_option(None, rest[0])
            self.print_help()
            raise SystemExit(2)
        command: Command = options.called
        see = f"(see `{self.prog} {name} {self._help_options}`)"
        for argument in rest:
            if argument.startswith("-") and argument != "-":
                said = None if self._on_spark else self._hints.get(option_name(argument))
                if said is not None:
                    raise UsageError(f"{said} {see}")
                self._refuse_option(name, argument)
        missing = [each.option_strings[-1] for each in options.needed if getattr(options, each.dest) is None]
        if missing:
            raise UsageError(f"the following arguments are required: {', '.join(missing)} {see}")
        if hasattr(options, "sources"):
            paths = [*options.sources, *([] if options.target is None else [options.target]), *rest]
            options.sources, options.target = paths[:-1], paths[-1] if paths else None
            if options.target is None or (not options.sources and not options.files_from):
                what = "a SOURCE and a TARGET are" if options.target is None else "a TARGET is"
                raise UsageError(f"{what} needed: {self.prog} {name} SOURCE TARGET {see}")
        elif hasattr(options, "files"):
            options.files = [*options.files, *rest]
        elif rest:
            raise UsageError(f"too many arguments {see}")
        if getattr(options, "kms", "") is None and (self._on_spark or self.prog != "ags1 parquet"):
            # There, keys may be named in other ways.
            options.kms = os.environ.get("AGS1_KMS") or None
        options.run = command.run
        if self._on_spark:
            options.run = partial(_run_on_spark, f"{self.prog} {name}".partition(" ")[2])
        return options

    def _refuse_option(self, command: str | None, argument: str) -> NoReturn:
        """Raise a UsageError for an unknown option; it names the option that was probably meant."""
        of = self.choices().get(command or "", self)
        name = option_name(argument)
        see = self.prog if command is None else f"{self.prog} {command}"
        meant = _meant(name, of.options()).rstrip()
        raise UsageError(f"unknown option {name}{': ' if meant else ''}{meant} (see `{see} {self._help_options}`)")


class Formatter(argparse.HelpFormatter):
    """Wraps the description, and only very long lines of the epilog."""

    def __init__(self, prog: str) -> None:
        # argparse makes a formatter for each argument; finding the width costs an import, and only help needs it.
        super().__init__(prog, width=_WIDEST)

    def format_help(self) -> str:
        """The help text, as wide as the terminal."""
        import shutil

        self._width = max(20, min(shutil.get_terminal_size().columns - 2, _WIDEST))
        self._max_help_position = min(26, max(self._width - 20, 4))
        return super().format_help()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        import textwrap

        lines = text.split("\n")
        return "\n".join(textwrap.fill(each, 80, subsequent_indent="  ") if len(each) > 80 else each for each in lines)


def option_name(argument: str) -> str:
    """The option of an argument, without its value, which may be a key."""
    return argument.partition("=")[0] if argument.startswith("--") else argument[:2]


def _meant(name: str, known: Iterable[str]) -> str:
    import difflib

    names = list(known)
    # Such as --footer-key-id for --key-id, and for --keyid too.
    ending = name[1:].replace("-", "")
    longer = [
        each
        for each in names
        if name.startswith("--")
        and (each.endswith(name[1:]) or (len(ending) > 3 and each.replace("-", "").endswith(ending)))
    ]
    found = sorted(longer, key=len) or difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f"did you mean {found[0]}? " if found else ""
