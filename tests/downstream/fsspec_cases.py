"""fsspec's abstract tests over ``ags1.fs``: getting files, and what an open of one does.

The file system is read-only. So the scenarios that the tests set up go to a directory, which is encrypted into a
dataset whenever one of their calls reads.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fsspec.tests.abstract as abstract
import pytest

from ags1 import dataset as datasets
from ags1.fs import Ags1FileSystem
from ags1.kms import MemoryKms


class SetUpFileSystem(Ags1FileSystem):
    """Takes what a test sets up, and reads it as every Ags1FileSystem does."""

    def __init__(self, folder: Path) -> None:
        self._plain, self._vault, self._kms = folder / "plain", folder / "vault", MemoryKms({"lake": bytes(32)})
        self._plain.mkdir()
        self._changed = False
        super().__init__(self._encrypted())

    def _encrypted(self) -> datasets.Dataset:
        self._changed = False
        return datasets.encrypt(self._plain, self._vault, self._kms, key_id="lake", delete=True)

    @property
    def dataset(self) -> datasets.Dataset:
        """The dataset, with what was set up since it was last read."""
        if self._changed:
            self._held = self._encrypted()
        return self._held

    @dataset.setter
    def dataset(self, opened: datasets.Dataset) -> None:
        self._held = opened

    def _at(self, path: Any) -> Path:
        self._changed = True
        return self._plain / self._strip_protocol(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._at(path).mkdir(parents=True, exist_ok=True)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        self.makedirs(path)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        self.pipe(path, b"")

    def pipe(self, path: Any, value: bytes = b"", **options: Any) -> None:
        file = self._at(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        target = self._at(path)
        shutil.rmtree(target) if target.is_dir() else target.unlink()


class _Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, tmp_path_factory: pytest.TempPathFactory) -> SetUpFileSystem:
        return SetUpFileSystem(tmp_path_factory.mktemp("ags1"))

    @pytest.fixture
    def fs_path(self) -> str:
        return "tests"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda first, *rest: "/".join([str(first).rstrip("/"), *(str(part).strip("/") for part in rest)])

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestGet(abstract.AbstractGetTests, _Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, _Fixtures):  # type: ignore[misc]
    pass
