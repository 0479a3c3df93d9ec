"""A mock of an object store, which only counts: its objects are files of a directory, and no request goes out.

Real stores are in tests/servers. This one is for tables of so many files that none of them could be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
from obstore.store import LocalStore

import ags1.storage.objects as objects

__all__ = ["CountingStore"]


class CountingStore:
    """Takes the place of every bucket from now on.

    Attributes
    ----------
    requests : Counter of str
        By kind: "get", "put", "head", "list" and "delete". A deletion of several objects counts as one.
    deleted : int
        Objects that were to be deleted, whether or not they were there.
    """

    def __init__(self, directory: Path) -> None:
        self.requests: Counter[str] = Counter()
        self.deleted = 0
        self._store = LocalStore(directory, mkdir=True)
        objects.client_of = lambda _location: self._store  # type: ignore[assignment, return-value]
        for name in ("get", "put", "head", "list", "list_with_delimiter"):
            setattr(obstore, name, self._counted(name.partition("_")[0], getattr(obstore, name)))
        self._delete = obstore.delete
        obstore.delete = self._counted("delete", self._deleted)

    def _counted(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.requests[kind] += 1
            return call(*arguments, **options)

        return counted

    def _deleted(self, store: Any, keys: str | list[str]) -> None:
        for key in [keys] if isinstance(keys, str) else keys:
            self.deleted += 1
            try:
                self._delete(store, key)
            except FileNotFoundError:
                # As S3 does.
                pass
