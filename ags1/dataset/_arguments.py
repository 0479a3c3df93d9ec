"""Arguments that the functions of a dataset share."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ags1.support.arguments import at_least_one, one_of
from ags1.support.typing import Any

Path = str | bytes | os.PathLike[str]


@contextmanager
def kms_client(kms: Any) -> Iterator[tuple[Any, Callable[[], object] | None]]:
    """A KMS client, and a function that closes it if it was made here; an exception closes it."""
    if isinstance(kms, str):
        from ags1.kms import load

        with ExitStack() as made:
            client = load(kms)
            made.callback(client.close)
            yield client, client.close
            made.pop_all()
    elif hasattr(kms, "wrap_key") and hasattr(kms, "unwrap_key"):
        yield kms, None
    else:
        raise TypeError(
            f"kms must be a client with wrap_key and unwrap_key, or a URL such as local:keys.json, "
            f"not {type(kms).__name__}"
        )


def relative(path: Path) -> str:
    """A path in the form of the manifest."""
    clean = posixpath.normpath(os.fsdecode(path).lstrip("/"))
    return "" if clean == "." else clean


def check_run(on_error: str, threads: int | None) -> None:
    """Check the arguments of a run. ValueError: `on_error` is neither "fail" nor "collect", or `threads` is below 1."""
    one_of(on_error, ("fail", "collect"), "on_error")
    at_least_one(threads, "threads")
