"""An Arrow file system that shows encrypted Parquet files as plaintext, for PyArrow datasets."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow
from pyarrow import fs

from ags1.parquet.view.view import ParquetView
from ags1.support.arrow_threads import lend
from ags1.support.typing import Any, NoReturn


class ViewHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """Lists the files of another file system, and opens their plaintext views. Thread-safe."""

    def __init__(self, base: Any, view: Callable[[str], ParquetView]) -> None:
        self._base = base
        self._view = view
        lend(self)

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
        return pyarrow.PythonFile(self._view(path), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def _refuse(self, *arguments: object) -> NoReturn:
        raise io.UnsupportedOperation("the plaintext views of encrypted files can only be read")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


def _without_size(info: Any) -> Any:
    """The file info without the size: that of the view is known only when the file is open."""
    return fs.FileInfo(info.path, info.type, mtime=info.mtime)
