"""Encrypted Parquet files as an Arrow file system of plaintext ones, which is what a dataset of PyArrow reads from."""

from __future__ import annotations

import atexit
import io
import time
import weakref
from collections.abc import Callable

import pyarrow
from pyarrow import fs

from ags1.parquet.view import ParquetView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["ViewHandler", "lend"]

# Seconds: for Arrow to be done with everything; and without a new file, if a dataset is still there.
_LONGEST_WAIT = 0.5
_QUIET = 0.05

_lent: weakref.WeakSet[ParquetView] = weakref.WeakSet()
_handlers: weakref.WeakSet[ViewHandler] = weakref.WeakSet()


def lend(view: ParquetView) -> ParquetView:
    """Remember that threads of Arrow hold a view, so that the process does not end under them.

    They may let go of it a moment after a scan is over, and after one that failed they may open some more files; where
    the interpreter is gone by then, they take the process with them.
    """
    _lent.add(view)
    return view


@atexit.register
def _wait_for_arrow() -> None:
    """Wait until Arrow has let go of everything; for what the program itself still holds, not for long."""
    begin = quiet = time.monotonic()
    opened = sum(handler.opened for handler in list(_handlers))
    while (_lent or _handlers) and time.monotonic() - begin < _LONGEST_WAIT:
        time.sleep(0.001)
        count = sum(handler.opened for handler in list(_handlers))
        if _lent or count != opened:
            quiet, opened = time.monotonic(), count
        elif time.monotonic() - quiet > _QUIET:
            return


class ViewHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """Lists the files of another file system, and opens their plaintext views.

    Parameters
    ----------
    base : pyarrow.fs.FileSystem
        Where the files are listed.
    view : callable
        Opens the view of the file at a path; called by several threads at once.

    Attributes
    ----------
    opened : int
        About how many times a file was asked for.
    """

    def __init__(self, base: Any, view: Callable[[str], ParquetView]) -> None:
        self._base = base
        self._view = view
        self.opened = 0
        _handlers.add(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__

    def get_type_name(self) -> str:
        return "ags1-parquet"

    def normalize_path(self, path: str) -> str:
        return str(self._base.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [_without_size(info) for info in self._base.get_file_info(paths)]

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        return [_without_size(info) for info in self._base.get_file_info(selector)]

    def open_input_file(self, path: str) -> Any:
        self.opened += 1
        return pyarrow.PythonFile(lend(self._view(path)), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def _refuse(self, *arguments: object) -> NoReturn:
        raise io.UnsupportedOperation("the plaintext views of encrypted files can only be read")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


def _without_size(info: Any) -> Any:
    """What is known of a file without opening it: its view has another size."""
    return fs.FileInfo(info.path, info.type, mtime=info.mtime)
