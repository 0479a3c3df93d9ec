"""Tables whose metadata is pinned: own commits go on from it, and what others did is refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1 import iceberg
from ags1.cli import main
from ags1.errors import AuthenticationError
from ags1.iceberg import create_table, load_table
from ags1.kms import MemoryKms
from tests.checks import every

KEYS = {"lake": bytes(range(16)), "next": bytes(range(16, 32))}
KMS = MemoryKms(KEYS)
ROWS = pyarrow.table({"id": [1, 2, 3]})


def test_own_commits_go_on_from_a_pin_and_foreign_ones_are_refused(tmp_path: Path) -> None:
    made = create_table(None, str(tmp_path / "t"), ROWS.schema, kms=KMS, key_id="lake")
    made.append(ROWS)
    pinned = load_table(None, str(tmp_path / "t"), kms=KMS, metadata_hash=made.metadata_hash)
    changes: list[Callable[[], object]] = [
        lambda: pinned.append(ROWS),
        lambda: pinned.delete("id = 1"),
        lambda: iceberg.rekey_table(pinned, key_id="next"),
        lambda: iceberg.rekey_table(pinned, data_keys=True, expire=True),
        lambda: iceberg.expire_snapshots(pinned),
        pinned.refresh,
    ]
    for change in changes:
        change()
    assert pinned.refresh().scan().count() == 4
    made.refresh().append(ROWS)
    for change in changes:
        with pytest.raises(AuthenticationError, match="another writer has committed"):
            change()
    with pytest.raises(AuthenticationError, match="is expected"):
        load_table(None, str(tmp_path / "t"), kms=KMS, metadata_hash=pinned.metadata_hash)
    with pytest.raises(ValueError, match="base64"):
        load_table(None, str(tmp_path / "t"), kms=KMS, metadata_hash="abc")


def test_a_commit_that_lost_a_race_is_not_made_on_top_of_what_is_not_pinned(tmp_path: Path) -> None:
    made = create_table(None, str(tmp_path / "t"), ROWS.schema, kms=KMS, key_id="lake")
    pinned = load_table(None, str(tmp_path / "t"), kms=KMS, metadata_hash=made.metadata_hash)
    catalog_table = pinned.catalog_table
    assert catalog_table is not None
    commit = catalog_table.commit

    def late(base: object, fields: object) -> object:
        made.append(ROWS)
        return commit(base, fields)  # type: ignore[arg-type]

    catalog_table.commit = late  # type: ignore[assignment,method-assign]
    with pytest.raises(AuthenticationError, match="another writer has committed"):
        pinned.append(ROWS)
    assert made.refresh().scan().count() == 3


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a table, and a KMS for the commands."""
    monkeypatch.setattr("ags1.kms.load", lambda url: MemoryKms(KEYS))
    monkeypatch.setenv("AGS1_KMS", "aws:")
    monkeypatch.chdir(tmp_path)
    pyarrow.parquet.write_table(ROWS, tmp_path / "rows.parquet")
    create_table(None, str(tmp_path / "t"), ROWS.schema, kms=KMS, key_id="lake").append(ROWS)
    return tmp_path


def held(pin: Path) -> str:
    return str(json.loads(pin.read_text())["metadata_hash"])


def test_a_pin_file_follows_the_commands_and_says_how_to_accept_the_rest(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pin = place / "pins" / "t.json"
    pin.parent.mkdir()
    options = ["--pin", str(pin)]
    assert main(["iceberg", "files", "t", *options]) == 0
    assert "now pins what was found, without a check" in capsys.readouterr().err
    assert pin.stat().st_mode & 0o777 == 0o600
    first = held(pin)
    for command in (
        ["append", "t", "rows.parquet"],
        ["delete", "t", "--filter", "id = 1", "--yes"],
        ["rekey", "t", "--yes", "--expire"],
        ["rewrap", "t", "--new-key-id", "next"],
        ["verify", "t"],
        ["scan", "t"],
    ):
        assert main(["iceberg", *command, *options]) == 0, command
        assert held(pin) == load_table(None, str(place / "t"), kms=KMS).metadata_hash
        assert "warning" not in capsys.readouterr().err
    assert held(pin) != first
    load_table(None, str(place / "t"), kms=KMS).append(ROWS)
    before = held(pin)
    for command in (["scan", "t"], ["append", "t", "rows.parquet"], ["verify", "t"], ["expire", "t", "--yes"]):
        assert main(["iceberg", *command, *options]) == 1
        assert "--repin` accepts what is there" in capsys.readouterr().err
        assert held(pin) == before
    assert main(["iceberg", "inspect", "t", *options, "--repin"]) == 0
    assert held(pin) == load_table(None, str(place / "t"), kms=KMS).metadata_hash
    assert main(["iceberg", "scan", "t", *options]) == 0


def test_an_older_copy_of_a_table_is_noticed(place: Path) -> None:
    shutil.copytree(place / "t", place / "old")
    assert main(["iceberg", "append", "t", "rows.parquet", "--pin", "pin.json"]) == 0
    shutil.rmtree(place / "t")
    (place / "old").rename(place / "t")
    assert main(["iceberg", "scan", "t"]) == 0
    assert main(["iceberg", "scan", "t", "--pin", "pin.json"]) == 1


@every("name", ["t/pin.json", "t/metadata/pin.json", "s3://lake/pin.json"])
def test_a_pin_lies_outside_of_what_it_pins(name: str, place: Path) -> None:
    assert main(["iceberg", "scan", "t", "--pin", name]) == 2
    assert not (place / name).exists()


def test_a_pin_that_others_can_write_or_that_is_none_pins_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pin = place / "pin.json"
    for text, mode, said in (("{}", 0o600, "holds no pin"), ("", 0o600, "holds no pin"), ("{}", 0o622, "chmod 600")):
        pin.write_text(text)
        pin.chmod(mode)
        assert main(["iceberg", "scan", "t", "--pin", str(pin)]) == 1
        assert said in capsys.readouterr().err
    pin.unlink()
    os.mkfifo(pin, 0o600)
    assert main(["iceberg", "scan", "t", "--pin", str(pin)]) == 1
    assert "holds no pin" in capsys.readouterr().err
    assert main(["iceberg", "scan", "t", "--repin"]) == 2


def test_a_catalogs_table_is_pinned_too(tmp_path: Path) -> None:
    catalog = SqlCatalog("sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    made = create_table(catalog, "db.t", ROWS.schema, kms=KMS, key_id="lake")
    pinned = load_table(catalog, "db.t", kms=KMS, metadata_hash=made.metadata_hash)
    pinned.append(ROWS)
    assert pinned.append(ROWS).metadata_hash == pinned.metadata_hash
    made.refresh().append(ROWS)
    with pytest.raises(AuthenticationError, match=r"db\.t"):
        pinned.append(ROWS)
    catalog.engine.dispose()


def test_pyicebergs_view_of_a_table_says_who_changes_it(tmp_path: Path) -> None:
    made = create_table(None, str(tmp_path / "t"), ROWS.schema, kms=KMS, key_id="lake")
    made.append(ROWS)
    before = sorted((tmp_path / "t").rglob("*"))
    for change in (
        lambda: made.table.append(ROWS),
        lambda: made.table.overwrite(ROWS),
        lambda: made.table.delete("id = 1"),
    ):
        with pytest.raises(PermissionError, match=r"use [a-z]+ of the EncryptedTable"):
            change()
    assert sorted((tmp_path / "t").rglob("*")) == before
