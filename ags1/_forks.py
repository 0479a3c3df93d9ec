"""What a forked child makes again: locks that threads of its parent held, which nobody would ever release in it."""

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
            """Start over, in a child that has one thread."""


_renewed: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_children(owner: Renewable) -> None:
    """Call the owner's ``renew()`` in each forked child, before anything else of the child is run."""
    _renewed.add(owner)


class ForkSafeLock:
    """A lock that a forked child finds open, whoever held it in the parent: ``with each.lock:``.

    It is no context manager itself: one in Python can be interrupted between taking the lock and saying so.
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
