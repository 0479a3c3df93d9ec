"""What a table is between a conversion and its expiry, and what its plans, reports and messages say of that."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from ags1 import iceberg
from ags1.cli import main
from ags1.errors import KeyAccessError, UnsupportedError
from ags1.iceberg import EncryptedTable, create_table, load_table
from ags1.keys import Key
from ags1.kms import LocalKms, MemoryKms

KMS = MemoryKms({"lake": bytes(range(16))})
ROWS = pyarrow.table({"id": [1, 2, 3]})
AFTERWARDS = "and ags1 only with `allow_plaintext=True`"


def new_table(place: Path) -> EncryptedTable:
    table = create_table(None, str(place / "t"), ROWS.schema, kms=KMS, key_id="lake")
    table.append(ROWS)
    return table


def test_a_decrypted_table_says_how_it_is_read(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert AFTERWARDS in str(iceberg.plan_conversion(table, decrypt=True))
    iceberg.decrypt_table(table)
    decrypted = load_table(None, str(tmp_path / "t"), kms=KMS)
    with pytest.raises(KeyAccessError, match=r"is not encrypted.*`allow_plaintext=True`"):
        decrypted.scan().to_arrow()
    assert "NOT encrypted, but older snapshots are" in str(decrypted.tree()).splitlines()[0]
    with pytest.raises(KeyAccessError, match="or somebody wants you to believe that"):
        load_table(None, str(tmp_path / "t"), kms=KMS, table_key_id="lake")
    assert load_table(None, str(tmp_path / "t"), kms=KMS, allow_plaintext=True).scan().count() == 3


def test_a_plan_with_expiry_does_not_say_that_old_snapshots_stay(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for expire, said in ((True, "are expired at the end"), (False, "until they are expired")):
        for change in ({"data_keys": True}, {"decrypt": True}):
            assert said in str(iceberg.plan_conversion(table, expire=expire, **change))


def test_where_there_is_nothing_to_do_nobody_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Key.generate().save(str(tmp_path / "k"))
    with LocalKms.create(tmp_path / "keys.json", {"lake": bytes(16)}, key_file=tmp_path / "k") as kms:
        table = create_table(None, str(tmp_path / "t"), ROWS.schema, kms=kms, key_id="lake")
        table.append(ROWS)
    command = ["iceberg", "encrypt", str(tmp_path / "t"), "--key-id", "lake"]
    command += ["--kms", f"local:{tmp_path}/keys.json?key_file={tmp_path}/k"]
    # What is quiet prints no plan.
    rekey = ["iceberg", "rekey", *command[2:], "--dry-run"]
    rekey[rekey.index("--key-id")] = "--new-key-id"
    for quiet in ([], ["-q"]):
        assert main([*rekey, *quiet]) == 0
        assert bool(capsys.readouterr().out) is not bool(quiet)
    for more in ([], ["--expire"]):
        assert main([*command, *more]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "there is nothing to do"
    # It sets a property, and so there is something.
    assert main([*command, "--data-key-bits", "256"]) == 2


def test_plaintext_is_named_only_where_old_snapshots_have_some(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(ROWS)
    plan, report = iceberg.plan_conversion(table, key_id="lake"), iceberg.encrypt_table(table, key_id="lake")
    assert plan.snapshots
    assert report.remaining
    for told in (plan, report):
        assert not told.plaintext
        assert not any(words in str(told) for words in ("in plaintext", "NOT all", "traces"))
    iceberg.decrypt_table(table, expire=True)
    bare = table.catalog_table.load().document.fields["current-snapshot-id"]  # type: ignore[union-attr]
    assert iceberg.encrypt_table(table, key_id="lake").plaintext == [bare]
    again = load_table(None, str(tmp_path / "t"), kms=KMS)
    plan = iceberg.plan_conversion(again, key_id="lake")
    assert plan.is_empty
    assert plan.plaintext == [bare]
    assert "1 old snapshot and all its files stay in plaintext" in str(plan)
    assert "NOT all encrypted yet: 1 old snapshot" in str(iceberg.encrypt_table(again, key_id="lake"))
    again.append(ROWS)
    assert bare in iceberg.plan_conversion(again, key_id="lake").plaintext


def test_a_decrypted_table_is_written_with_an_engine_that_can(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert "PyIceberg 0.12 only reads it" in str(iceberg.plan_conversion(table, decrypt=True))
    iceberg.decrypt_table(table, expire=True)
    decrypted = load_table(None, str(tmp_path / "t"), kms=KMS)
    with pytest.raises(UnsupportedError, match="or write it with Spark"):
        decrypted.append(ROWS)
    # When PyIceberg can, the advice is to be put right.
    with pytest.raises(ValueError, match="Cannot write manifest for table version: 3"):
        StaticTable.from_metadata(decrypted.metadata_location).append(ROWS)


def test_a_rewrap_tells_of_catalogs_only_where_a_table_may_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Key.generate().save(str(tmp_path / "k"))
    keys = {"lake": bytes(16), "next": bytes(range(16))}
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    with LocalKms.create(tmp_path / "keys.json", keys, key_file=tmp_path / "k") as kms:
        create_table(None, str(tmp_path / "t"), ROWS.schema, kms=kms, key_id="lake").append(ROWS)
        made = create_table(catalog, "db.t", ROWS.schema, kms=kms, key_id="lake")
        made.append(ROWS)
        place = made.document.fields["location"]
    more = ["--kms", f"local:{tmp_path}/keys.json?key_file={tmp_path}/k"]
    for key_id in ("next", "lake"):
        assert main(["iceberg", "rewrap", str(tmp_path / "t"), *more, "--new-key-id", key_id]) == 0
        last = capsys.readouterr().out.splitlines()[-2:]
        assert last[0] == "The table has no catalog, and is changed."
        assert last[1].startswith("Writers and readers need a KMS")
    for key_id in ("next", "lake"):
        assert main(["iceberg", "rewrap", place, *more, "--new-key-id", key_id]) == 0
        assert "The table changes when its catalog is told" in capsys.readouterr().out
