"""Asking before something is done that can't be undone. What would be done is shown first, wherever that is.

A plan of nothing asks nothing.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from ags1.cli.output import say_json, warn
from ags1.support.exit_codes import UsageError
from ags1.support.typing import Any


def agreed(said: Namespace, question: str, plan: dict[str, Any] | None = None) -> bool:
    """Ask, unless --yes is given. After another answer than yes, say that nothing was changed.

    UsageError: there is nobody to ask. With --json, the object `plan` is printed then, with the error.
    """
    if said.yes:
        return True
    if said.json or sys.stdin is None or not sys.stdin.isatty():
        refusal = f"{question} Nobody can be asked here: say --yes to have it done"
        if said.json and plan is not None:
            say_json({**plan, "error": refusal})
        raise UsageError(refusal)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    warn("ags1: nothing was changed")
    return False
