"""Standard output for bytes."""

from __future__ import annotations

import sys

from ags1.cli import OutputClosed, forget_output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["StandardOutput", "standard_output"]


class StandardOutput:
    """Standard output for bytes, whose failures say that it was the one."""

    name = "standard output"

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        try:
            return int(self._file.write(data))
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            forget_output()
            raise OSError(error.errno, error.strerror, self.name) from None

    def flush(self) -> None:
        try:
            self._file.flush()
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            forget_output()
            raise OSError(error.errno, error.strerror, self.name) from None


def standard_output() -> StandardOutput:
    """Standard output for bytes.

    Raises
    ------
    OSError
        It was closed by the caller.
    """
    if sys.stdout is None:
        raise OSError(9, "it is closed", "standard output")
    return StandardOutput(sys.stdout.buffer)
