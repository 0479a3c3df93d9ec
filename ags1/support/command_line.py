"""The shared part of all command lines of ags1: commands from one table of options, and helpful errors."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ags1.support.command_options import BUNDLES, EXCLUSIVE, OPTIONS
from ags1.support.exit_codes import UsageError
from ags1.support.typing import Any, NoReturn

Hint = Callable[[str], str | None]

# Columns of help at most: longer lines are hard to read.
_WIDEST = 100
# What is left of 80 columns beside "usage: ".
_USAGE_COLUMNS = 72
_INVALID_CHOICE = ": invalid choice: "
_JSON = """\
JSON, one object a line:
  {}
  `error` is null, or a message; then other fields may be missing.
"""


def no_file_left(source: str, include: Sequence[str] | None, exclude: Sequence[str] | None) -> str | None:
    """The message if the patterns leave no file; None without patterns, because nothing is misspelt then."""
    patterns = [f"--include {shlex.quote(each)}" for each in include or ()]
    patterns += [f"--exclude {shlex.quote(each)}" for each in exclude or ()]
    return f"{source}: no file is left by {' '.join(patterns)}: correct the patterns" if patterns else None


@dataclass(frozen=True)
class OnSpark:
    """A command with ``--spark``.

    Attributes
    ----------
    function : str
        Its name in :mod:`ags1.spark`. The options are its parameters.
    places : mapping
        Parameters that get the positional arguments, and their help if it differs.
    options, changes
        As those of :meth:`CommandParser.add_command`; each command has JOB besides.
    defaults : mapping
        Further arguments.
    """

    function: str
    places: Mapping[str, str]
    options: str
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


class CommandParser(argparse.ArgumentParser):
    """A parser that raises, and that suggests the command that was probably meant.

    `what` is the name for its commands in help and in messages. With `only`, the other commands get a name and no
    options. With `on_spark`, it has the commands with ``--spark`` alone.
    """

    def __init__(
        self, *, what: str = "COMMAND", only: str | None = None, on_spark: bool = False, **settings: Any
    ) -> None:
        super().__init__(formatter_class=Formatter, allow_abbrev=False, **settings)
        self._on_spark = on_spark
        self._what = what
        self._only = only
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

    def add_command(
        self,
        name: str,
        places: Mapping[str, Sequence[Any]],
        summary: str,
        options: str = "",
        *,
        needs: str = "",
        more: str = "",
        epilog: str = "",
        fields: str = "",
        examples: str = "",
        changes: Mapping[str, Mapping[str, Any]] | None = None,
        spark: OnSpark | None = None,
        **defaults: Any,
    ) -> None:
        """Add a command.

        Parameters
        ----------
        places : mapping
            Positional arguments: attribute -> name, help and settings of argparse, if any. A name that ends with
            ``...`` takes several values; a name in brackets is optional.
        options : str
            Names of :data:`ags1.support.command_options.OPTIONS` and ``BUNDLES``. ``NAME!`` is required.
        needs : str
            Required options in the usage text.
        fields : str
            Fields of each JSON object.
        examples : str
            Commands, one a line.
        changes : mapping, optional
            Settings of options that differ for this command.
        spark : OnSpark, optional
            The command with ``--spark``.
        defaults
            Attributes of the parsed result.
        """
        if self._on_spark and (options or places):
            if spark is None:
                return
            texts = zip(spark.places.items(), places.values(), strict=True)
            places = {to: (name.rstrip("."), other or text) for (to, other), (name, text, *_) in texts}
            options, needs, epilog, fields, examples = f"{spark.options} JOB", "", "", "", ""
            both = {*(changes or {}), *spark.changes}
            changes = {each: {**(changes or {}).get(each, {}), **spark.changes.get(each, {})} for each in both}
            command = f"{self.prog} {name}".partition(" ")[2]
            defaults = {"function": spark.function, "command": command, **spark.defaults}
        elif spark is not None:
            options += " spark"
        if self._commands is None:
            # Without `prog`, argparse formats a usage text to find it, and imports half of shutil for that.
            self._commands = self.add_subparsers(
                title=f"{self._what.lower()}s", metavar=self._what, dest=self._what.lower(), prog=self.prog
            )
        required = [name for name in options.split() if name.endswith("!")]
        needs = " ".join([*(_usage_of(each[:-1]) for each in required), *([needs] if needs else [])])
        usage = " ".join([self.prog, name, *(each[0] for each in places.values())])
        ways = f"{needs} [options]" if needs else "[options]" if options else ""
        gap = "\n           " if len(usage) + len(ways) > _USAGE_COLUMNS else " "
        parser = self._commands.add_parser(
            name,
            help=summary,
            on_spark=self._on_spark,
            usage=f"{usage}{gap}{ways}".rstrip(),
            description=f"{summary[0].upper()}{summary[1:]}. {more}".strip(),
            epilog="\n".join(filter(None, (epilog, fields and _JSON.format(fields), _examples(examples)))) or None,
        )
        parser.set_defaults(**defaults)
        if self._only is not None and name != self._only:
            return
        for dest, (metavar, text, *settings) in places.items():
            several = "+" if metavar.endswith("...") else "?" if metavar.startswith("[") else None
            how = {"nargs": several} | (settings[0] if settings else {})
            parser.add_argument(dest, metavar=metavar.strip("[.]"), help=text, **how)
        add_options(parser, options, changes or {})

    def parse(self, arguments: Sequence[str], hint: Hint | None = None) -> argparse.Namespace:
        """Parse the arguments. Files may stand behind options, and ``help NAME`` is ``NAME --help``.

        `hint` returns a message for an option that the command does not have, or None. UsageError: the arguments are
        invalid; the message shows no value that might be a key. SystemExit: help was shown, as without any command.
        """
        arguments = list(arguments)
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:2], "--help"]
        options, rest = self.parse_known_args(arguments)
        command = getattr(options, self._what.lower())
        if command is None:
            if rest:
                self._refuse_option(None, rest[0])
            self.print_help()
            raise SystemExit(2)
        see = f"(see `{self.prog} {command} {self._help_options}`)"
        for argument in rest:
            if argument.startswith("-") and argument != "-":
                said = hint(option_name(argument)) if hint is not None else None
                if said is not None:
                    raise UsageError(f"{said} {see}")
                self._refuse_option(command, argument)
        missing = [flag for dest, flag in vars(options).pop("needed", ()) if getattr(options, dest) is None]
        if missing:
            raise UsageError(f"the following arguments are required: {', '.join(missing)} {see}")
        if hasattr(options, "sources"):
            paths = [*options.sources, *([] if options.target is None else [options.target]), *rest]
            options.sources, options.target = paths[:-1], paths[-1] if paths else None
            if options.target is None or (not options.sources and not options.files_from):
                what = "a SOURCE and a TARGET are" if options.target is None else "a TARGET is"
                raise UsageError(f"{what} needed: {self.prog} {command} SOURCE TARGET {see}")
        elif hasattr(options, "files"):
            options.files = [*options.files, *rest]
        elif len(rest) == 1 and getattr(options, "name", rest) is None:
            options.name = rest[0]
        elif rest:
            raise UsageError(f"too many arguments {see}")
        return options

    def _refuse_option(self, command: str | None, argument: str) -> NoReturn:
        """Raise a UsageError for an unknown option; it names the option that was probably meant."""
        of = self.choices().get(command or "", self)
        name = option_name(argument)
        see = self.prog if command is None else f"{self.prog} {command}"
        meant = _meant(name, of.options()).rstrip()
        raise UsageError(f"unknown option {name}{': ' if meant else ''}{meant} (see `{see} {self._help_options}`)")


def add_options(parser: argparse.ArgumentParser, names: str, changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Add options of the table to a parser, each to its section of the help."""
    wanted: dict[str, bool] = {}
    for name in _resolved(names):
        wanted[name.rstrip("!")] = name.endswith("!") or wanted.get(name, False)
    sections: dict[Any, Any] = {}
    needed: list[tuple[str, str]] = []
    for name, is_required in wanted.items():
        section, settings = _setting_of(name)
        settings |= changes.get(name, {})
        if section not in sections:
            sections[section] = parser.add_argument_group(section)
        group = sections[section]
        others = next((each for each in EXCLUSIVE if name in each), ())
        if sum(each in wanted for each in others) > 1:
            if others not in sections:
                sections[others] = group.add_mutually_exclusive_group()
            group = sections[others]
        action = group.add_argument(*settings.pop("flags", (f"--{name}",)), **settings)
        if is_required:
            needed.append((action.dest, action.option_strings[-1]))
    # argparse would check required options before unknown ones, which may be keys.
    parser.set_defaults(needed=needed)


def _examples(lines: str) -> str:
    return "\n".join(["examples:", *(f"  {line}" for line in lines.split("\n")), ""]) if lines else ""


def _resolved(names: str) -> Iterator[str]:
    for name in names.split():
        if name in BUNDLES:
            yield from _resolved(BUNDLES[name])
        else:
            yield name


def _setting_of(name: str) -> tuple[str, dict[str, Any]]:
    for section, options in OPTIONS.items():
        if name in options:
            return section, dict(options[name])
    if not name.startswith("old-"):
        raise KeyError(name)
    settings = _setting_of(name.removeprefix("old-"))[1]
    dest = settings.get("dest")
    of_source = {"help": f"SOURCE: {settings['help']}"} | ({"dest": f"old_{dest}"} if dest else {})
    return "how SOURCE is encrypted", settings | of_source


def _usage_of(name: str) -> str:
    settings = _setting_of(name)[1]
    return f"{settings.get('flags', (f'--{name}',))[-1]} {settings['metavar']}"


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
