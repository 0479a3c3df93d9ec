"""Asking before something is done that can't be undone."""

from __future__ import annotations

import argparse
import sys

from ags1.support.exit_codes import UsageError


def need_consent(options: argparse.Namespace, question: str = "") -> None:
    """Refuse to go on, with a UsageError, where nobody can be asked and --yes is not given."""
    if not options.yes and (options.json or sys.stdin is None or not sys.stdin.isatty()):
        where = f"{question} Nobody can be asked here".strip()
        raise UsageError(f"{where}: say --dry-run to see what would be done, or --yes to have it done")


def agreed(options: argparse.Namespace, question: str) -> bool:
    """Ask, unless --yes is given. After another answer than yes, say that nothing was changed."""
    if options.yes:
        return True
    need_consent(options, question)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("ags1: nothing was changed", file=sys.stderr)
    return False
