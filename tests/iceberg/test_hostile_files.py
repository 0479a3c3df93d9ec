"""Files of a table that somebody without keys has put there: pipes, devices, claims. Nobody waits, each is named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1.errors import Ags1Error, FormatError
from ags1.iceberg import (
    EncryptedFileIO,
    create_table,
    decrypt_table,
    encrypt_table,
    load_table,
    open_table,
    rekey_table,
)
from ags1.kms import MemoryKms
from tests.iceberg.keys import MASTER_KEYS

KMS = MemoryKms(MASTER_KEYS)
ROWS = pyarrow.table({"id": pyarrow.array(range(10), pyarrow.int64())})


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A table with data files and a deletion vector."""
    table = create_table(None, str(tmp_path / "t"), ROWS.schema, kms=KMS, key_id="keyA")
    table.append(ROWS)
    table.delete("id = 3")
    return tmp_path / "t"


def metadata_of(directory: Path) -> Path:
    return max((directory / "metadata").glob("*.metadata.json"))


def files_of(directory: Path) -> dict[str, Path]:
    """The file of each kind that the newest snapshot has."""
    path = metadata_of(directory)
    fields = json.loads(path.read_text())
    listed = Path(fields["snapshots"][-1]["manifest-list"].removeprefix("file://"))
    files = load_table(None, str(directory), kms=KMS, allow_plaintext=True).files().to_pylist()
    found = {each["kind"]: Path(each["path"].removeprefix("file://")) for each in files}
    return {"metadata": path, "manifest list": listed, **found}


def test_pipes_and_devices_in_place_of_files_hang_nobody(made: Path) -> None:
    files = files_of(made)
    assert len(files) > 3
    location = str(files["metadata"])

    def opened() -> Any:
        return open_table(location, KMS)

    uses: dict[str, Callable[[], Any]] = {
        "scan": lambda: opened().scan().to_arrow(),
        "sizes": lambda: opened().files(sizes=True),
        "append": lambda: load_table(None, str(made), kms=KMS).append(ROWS),
        "delete": lambda: load_table(None, str(made), kms=KMS).delete("id = 4"),
        "rekey": lambda: rekey_table(load_table(None, str(made), kms=KMS), data_keys=True),
    }
    for kind, path in files.items():
        kept = path.rename(path.with_name("kept"))
        puts: list[Callable[[Path], Any]] = [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")]
        for put in puts:
            put(path)
            for name, use in uses.items():
                if name in ("scan", "rekey") or kind in ("metadata", "manifest list"):
                    with pytest.raises((Ags1Error, OSError)):
                        use()
            if kind != "metadata":
                assert not opened().verify().ok, kind
                assert not opened().audit().ok, kind
            path.rmdir() if path.is_dir() else path.unlink()
        kept.rename(path)
    assert opened().verify().ok
    assert opened().scan().count() == 9


def test_conversions_wait_for_no_pipe(made: Path) -> None:
    decrypt_table(load_table(None, str(made), kms=KMS))
    for kind, path in files_of(made).items():
        kept = path.rename(path.with_name("kept"))
        os.mkfifo(path)
        with pytest.raises((Ags1Error, OSError)):
            encrypt_table(load_table(None, str(made), kms=KMS, allow_plaintext=True), key_id="keyA")
        path.unlink()
        kept.rename(path)
        assert kind != "data" or open_table(str(metadata_of(made)), KMS, allow_plaintext=True).scan().count() == 9


def test_metadata_of_any_length_is_read_with_a_bound(made: Path) -> None:
    path = metadata_of(made)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError):
        open_table(str(path), KMS)
    with pytest.raises(FormatError):
        load_table(None, str(made), kms=KMS)


def test_a_current_snapshot_that_is_not_listed_is_damage(made: Path) -> None:
    path = metadata_of(made)
    fields = json.loads(path.read_text())
    fields.update({"snapshots": [], "refs": {}, "snapshot-log": []})
    path.write_text(json.dumps(fields))
    with pytest.raises(FormatError):
        open_table(str(path), KMS).files()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("{table}/metadata/a\0b", "cannot be read"),
        ("/x/a\0b", "lies outside of the table"),
        ("gopher://x/y", "lies outside of the table"),
    ],
    ids=ascii,
)
def test_a_path_that_no_file_can_have_is_damage(made: Path, path: str, text: str) -> None:
    metadata = metadata_of(made)
    fields = json.loads(metadata.read_text())
    fields["snapshots"][-1]["manifest-list"] = path.format(table=made)
    metadata.write_text(json.dumps(fields))
    with pytest.raises(FormatError, match=text):
        open_table(str(metadata), KMS).scan().to_arrow()


@pytest.mark.parametrize("location", ["", "/", "file:///"])
def test_a_place_that_is_no_file_has_no_length(location: str) -> None:
    with pytest.raises(OSError, match=r"directory|regular file"):
        len(EncryptedFileIO(kms=KMS).new_input(location))
