"""What a forked child makes anew: locks that threads of its parent held, which nobody would ever release in it."""

from __future__ import annotations

import os
import threading
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Renewable(Protocol):
        """What has locks, or what threads of this process share."""

        def renew(self) -> None:
            """Begin anew, in a child that has one thread."""


__all__ = ["ForkSafeLock", "renew_in_children"]

_renewed: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_children(owner: Renewable) -> None:
    """Call the owner's ``renew()`` in each forked child, before anything else of the child is run."""
    _renewed.add(owner)


class ForkSafeLock:
    """A lock that a forked child finds open, whoever held it in the parent."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_in_children(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            # Renewed by a fork inside the block, in the child.
            pass

    def renew(self) -> None:
        """Replace the lock, in a child that has one thread."""
        self._lock = threading.Lock()


def _renew() -> None:
    for each in list(_renewed):
        each.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
