"""Context managers that close themselves."""

from __future__ import annotations

from ags1.support.typing import Self


class Closing:
    """A context manager that is closed at its end, whatever happened."""

    __slots__ = ()

    def close(self) -> None:
        """Release what it holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
