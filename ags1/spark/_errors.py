"""What a run raises for files that failed: the first error, by its class, with what to do next."""

from __future__ import annotations

import builtins
import re

import ags1.errors as errors
import ags1.kms as kms
from ags1._words import with_name
from ags1.spark._engine import Outcome
from ags1.spark._results import Result

__all__ = ["FailedFiles", "error_of", "raise_for"]

_ERRNO = re.compile(r"\[Errno ([0-9]+)\]")


class FailedFiles(Exception):
    """Mixed into what a run raises: `result` is what the run did until then."""

    result: Result | None = None


def raise_for(outcome: Outcome, verb: str, result: Result | None, *, keeps: bool = True) -> None:
    """Raise what a failed outcome says, of the class that it had in the worker.

    It is RuntimeError if the class is neither this package's nor Python's. The exception has the attribute ``result``.
    """
    text = with_name(outcome.path, outcome.error or "")
    if keeps:
        text += ". What was done is kept: run it again to go on, or with on_error='collect' to do the others."
    raised = _made(outcome, f"{verb}: {text}")
    raised.result = result
    raise raised


def error_of(outcome: Outcome) -> FailedFiles:
    """The exception that a failed outcome was made of, as far as its class can be had here."""
    return _made(outcome, outcome.error or "")


def _made(outcome: Outcome, text: str) -> FailedFiles:
    name = outcome.kind or ""
    kind = next((found for module in (errors, kms, builtins) if (found := getattr(module, name, None))), None)
    if not (isinstance(kind, type) and issubclass(kind, (errors.Ags1Error, OSError, ValueError))):
        kind = RuntimeError
    try:
        made = _with_result(kind, text)
    except TypeError:
        # UnicodeDecodeError, for one, cannot be made of a message.
        made = _with_result(RuntimeError, text)
    number = _ERRNO.match(outcome.error or "")
    if isinstance(made, OSError) and number is not None:
        made.errno = int(number[1])
    return made


def _with_result(kind: type[Exception], text: str) -> FailedFiles:
    made: FailedFiles = type(kind.__name__, (kind, FailedFiles), {"__module__": kind.__module__})(text)
    return made
