"""What every command line of ags1 has in common: errors that help, and help that is filled but keeps its examples."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

__all__ = ["CommandParser", "Formatter", "UsageError", "option_name", "refuse_option"]

# Text is hard to read in longer lines.
_WIDEST = 100
_INVALID_CHOICE = ": invalid choice: "


class UsageError(Exception):
    """The arguments make no sense together."""


class CommandParser(argparse.ArgumentParser):
    """A parser that raises, and that says which command was probably meant."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError with the message; one of argparse's about a command lists the commands."""
        what, choice, given = message.partition(_INVALID_CHOICE)
        known = list(self.choices())
        if choice and known and what in ("argument COMMAND", "argument ACTION"):
            kind = what.rpartition(" ")[2].lower()
            name = given.partition(" (choose")[0].strip("'\"")
            message = f"there is no such {kind}; {_meant(name, known)}there are {', '.join(known)}"
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def choices(self) -> dict[str, CommandParser]:
        """The parsers of its commands, by their names."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    def options(self) -> list[str]:
        """The long names of its options."""
        return [name for name in self._option_string_actions if name.startswith("--")]


class Formatter(argparse.HelpFormatter):
    """Fills the description, leaves the epilog's lines as they are."""

    def __init__(self, prog: str) -> None:
        # argparse makes one for each argument, to check it; the width costs an import and matters only for help.
        super().__init__(prog, width=_WIDEST)

    def format_help(self) -> str:
        """The help text, as wide as the terminal."""
        import shutil

        self._width = max(20, min(shutil.get_terminal_size().columns - 2, _WIDEST))
        self._max_help_position = min(26, max(self._width - 20, 4))
        return super().format_help()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def option_name(argument: str) -> str:
    """The option of an argument, without its value, which may be a key."""
    return argument.partition("=")[0] if argument.startswith("--") else argument[:2]


def refuse_option(parser: CommandParser, command: str | None, argument: str) -> NoReturn:
    """Raise a UsageError for an option that a command does not have; it names the one that was probably meant."""
    of = parser.choices().get(command or "", parser)
    name = option_name(argument)
    see = parser.prog if command is None else f"{parser.prog} {command}"
    meant = _meant(name, of.options()).rstrip()
    raise UsageError(f"unknown option {name}{': ' if meant else ''}{meant} (see `{see} --help`)")


def _meant(name: str, known: Iterable[str]) -> str:
    import difflib

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"did you mean {found[0]}? " if found else ""
