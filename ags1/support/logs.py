"""Lines for Python's logging, which is not imported here: before somebody else did, nobody listens."""

from __future__ import annotations

import sys

from ags1.support.typing import Any


def logger_of(name: str) -> Any:
    """The logger of this name, or None if no program has imported logging.

    Without handlers of the program's own, nothing is written, not even a warning on standard error.
    """
    logging = sys.modules.get("logging")
    if logging is None:
        return None
    logger = logging.getLogger(name)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
