"""Renew locks in a forked child: a thread of the parent that held one does not exist there to release it."""

from __future__ import annotations

import os
import threading
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Renewable(Protocol):
        """An object that has locks, or that threads of this process share."""

        def renew(self) -> None:
            """Start over, in a child that has one thread."""


_renewed: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_children(owner: Renewable) -> None:
    """Call the owner's ``renew()`` in each forked child, before anything else of the child is run."""
    _renewed.add(owner)


class ForkSafeLock:
    """A lock that is free in a forked child, even if a thread held it in the parent: ``with each.lock:``.

    It is not a context manager itself: ``__enter__`` in Python can be interrupted after it has taken the lock.
    """

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Replace the lock, in a child that has one thread."""
        self.lock = threading.Lock()


def _renew() -> None:
    for each in list(_renewed):
        each.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
