"""Sealed payloads from the driver to its tasks: no path or key is readable where Spark stores or shows them.

driver   Sealer: the key of a run, wrapped below the master key  ->  seal(payload)
worker   Opener: the wrapped key and the URL of a KMS       ->  one call to the KMS in each worker process

The seal is that of :mod:`ags1.work.records`, as a kind of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, urlencode

from ags1.dataset.keys import DatasetKeys
from ags1.dataset.runs import RunKeys, RunReference
from ags1.errors import AuthenticationError
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.kms import load
from ags1.storage import Location
from ags1.support.recently_used import RecentlyUsed

T = TypeVar("T")

_KIND, _RESULT = "spark task", "spark result"
_KEPT = 32
_made = RecentlyUsed(_KEPT)
_process = os.getpid()


def of_process(name: Any, make: Callable[[], T]) -> T:
    """A cache of one value in each process, by a comparable name; a forked child makes its own."""
    global _process
    if _process != os.getpid():
        # Without the secrets of a parent.
        _made.clear()
        _process = os.getpid()
    made: T = _made.get(name, make)
    return made


def kms_reference(kms: object, name: str = "kms") -> str:
    """Check that a KMS is given by reference.

    Raises
    ------
    TypeError
        It is a client, or another object of this process only.
    ValueError
        Not a URL that :func:`ags1.kms.load` takes.
    """
    if not isinstance(kms, str):
        raise TypeError(
            f"{name} must be a URL such as 'aws:?region=eu-central-1' or 'local:keystore', not "
            f"{type(kms).__name__}: every worker makes its own client from it, so that no secret travels"
        )
    return _absolute(kms)


def _absolute(kms: str) -> str:
    """The same reference with absolute paths of local files: workers have another current directory."""
    scheme, _, rest = kms.partition(":")
    if scheme.lower() != "local":
        return kms
    path, _, query = rest.partition("?")
    pairs = [
        (name, os.path.abspath(os.path.expanduser(value)) if name in ("key_file", "password_file") else value)
        for name, value in parse_qsl(query, keep_blank_values=True)
    ]
    where = os.path.abspath(os.path.expanduser(path)) if path else ""
    return f"{scheme}:{where}" + (f"?{urlencode(pairs)}" if pairs else "")


def kms_client(url: str) -> Any:
    """The client of this process for a URL, with its cache."""
    return of_process(("client", url), lambda: load(url))


def run_keys(reference: RunReference, kms: str) -> RunKeys:
    """The keys of a run; each process asks the KMS once."""
    return of_process(("run", kms, reference.run), lambda: reference.unwrap(kms_client(kms)))


def dataset_keys(key: WrappedKey, kms: str, location: Location) -> DatasetKeys:
    """What the key of a dataset opens; each process asks the KMS once."""
    name = ("dataset", kms, location, key.entry, key.key_id)
    return of_process(name, lambda: DatasetKeys(key, kms_client(kms), location.shown))


class Opener:
    """Opens, in a worker, payloads of a :class:`Sealer`. It has no secret, and can be pickled."""

    def __init__(self, reference: RunReference, kms: str) -> None:
        self.reference = reference
        self.kms = kms

    def keys(self) -> RunKeys:
        """The keys of the run; each process asks the KMS once."""
        return run_keys(self.reference, self.kms)

    def open(self, data: bytes, label: str) -> bytes:
        """Return the payload. Raise AuthenticationError if it has another label or was changed."""
        try:
            return self.keys().seal(_KIND).open(data, label)
        except AuthenticationError:
            text = "what this task is to do was changed on its way, or belongs to another task"
            raise AuthenticationError(text) from None

    def seal(self, data: bytes, label: str) -> bytes:
        """Seal the result of a task for :meth:`Sealer.open`."""
        return self.keys().seal(_RESULT).seal(data, label)


class Sealer:
    """Seals on the driver, with the key of a run; see :class:`Opener`."""

    def __init__(self, keys: RunKeys, kms: str) -> None:
        self._keys = keys
        self.opener = Opener(keys.reference, kms)

    @classmethod
    def create(cls, kms: str, key_id: str, encryption_keys: Iterable[dict[str, Any]] = ()) -> Sealer:
        """Seal with a key that is made for this, below a master key.

        `encryption_keys` are wrapped keys of a dataset or a table under that master key. If one of them is a key
        encryption key that is young enough, the KMS only needs to unwrap.
        """
        client = kms_client(kms)
        reference = RunReference.create(WrappedKey(key_id, tuple(encryption_keys)), client)
        return cls(reference.unwrap(client), kms)

    def seal(self, data: bytes, label: str) -> bytes:
        """Seal a payload for :meth:`Opener.open`."""
        return self._keys.seal(_KIND).seal(data, label)

    def open(self, data: bytes, label: str) -> bytes:
        """Return the result of a task. Raise AuthenticationError if it has another label or was changed."""
        return self._keys.seal(_RESULT).open(data, label)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Sealer cannot be pickled: it holds a key; send its opener")


def sealer_under(kms: str | None, transfer_key_id: str | None) -> Sealer | None:
    """What seals the work of a job that needs no master key itself; None if the caller names none for it."""
    if transfer_key_id is None:
        return None
    if kms is None:
        raise ValueError("transfer_key_id is a master key of the service kms: give that too")
    return Sealer.create(kms, transfer_key_id)
