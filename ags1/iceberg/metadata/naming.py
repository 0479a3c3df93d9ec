"""Errors that name their file and have a documented type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ags1.errors import Ags1Error, FormatError, without_secrets


@contextlib.contextmanager
def naming(path: str, problem: str = "is not the Avro file that it should be") -> Iterator[None]:
    """Add the file's name to any error that damaged bytes can cause here, in fastavro, Arrow or PyIceberg.

    Errors of other packages become a FormatError that says `problem`.
    """
    try:
        yield
    except Ags1Error as error:
        # Messages about local files have the path without its scheme.
        if path.rpartition("/")[2] not in str(error):
            error.args = (without_secrets(f"{path}: {error}"),)
        raise
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        # Arrow's own errors about bytes are OSError too, without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FormatError(f"{path}: {problem}: {type(error).__name__}: {error}") from error
