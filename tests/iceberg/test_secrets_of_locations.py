"""No error and no report of a table shows the user or the password of its location."""

from __future__ import annotations

import json
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sqlalchemy import text

from ags1 import Ags1Error, iceberg
from ags1.cli import main
from ags1.iceberg import EncryptedTable
from ags1.iceberg.catalogs.rest import RestTable
from ags1.kms import MemoryKms

SECRETS = ("someone-known", "PASS-word")
PLACE = f"memory://{':'.join(SECRETS)}@host"
MASTER_KEYS = {"lake": bytes(range(16)), "next": bytes(range(16, 32))}
KMS = MemoryKms(MASTER_KEYS)
ROWS = pyarrow.table({"id": [1, 2, 3]})
STORE: dict[str, Any] = MemoryFileSystem.store


class Table:
    """A table whose files all have the secret in their paths, as it was made; for one test after another."""

    def __init__(self, encrypted: bool) -> None:
        STORE.clear()
        properties = {"uri": "sqlite://", "py-io-impl": "ags1.iceberg.EncryptedFileIO"}
        self._catalog = SqlCatalog("sql", warehouse=PLACE, **properties)
        self._catalog.create_namespace("db")
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        table = iceberg.create_table(self._catalog, "db.t", schema, kms=KMS, key_id="lake", location=f"{PLACE}/t")
        for _ in range(2):
            table.append(ROWS)
        if not encrypted:
            iceberg.decrypt_table(table)
        self._newest = table.refresh().metadata_location
        self._files = {name: file.getvalue() for name, file in STORE.items()}

    def restored(self) -> Any:
        STORE.clear()
        for name, data in self._files.items():
            with MemoryFileSystem().open(name, "wb") as file:
                file.write(data)
        with self._catalog.engine.begin() as connection:
            connection.execute(text("UPDATE iceberg_tables SET metadata_location = :newest"), {"newest": self._newest})
        return self._catalog

    @property
    def names(self) -> list[str]:
        return sorted(self._files)


def loaded(catalog: Any) -> EncryptedTable:
    return iceberg.load_table(catalog, "db.t", kms=KMS, allow_plaintext=True)


def in_place(catalog: Any) -> EncryptedTable:
    return iceberg.load_table(None, f"{PLACE}/t", kms=KMS)


def command(*words: str) -> Callable[[Any], Any]:
    return lambda catalog: main([*words, f"{PLACE}/t", "--kms", "module:tests.iceberg.test_secrets_of_locations.Kms"])


def Kms(**options: str) -> MemoryKms:
    return MemoryKms(MASTER_KEYS)


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "load": loaded,
    "load without a catalog": in_place,
    "load another key": lambda catalog: iceberg.load_table(None, f"{PLACE}/t", kms=KMS, table_key_id="next"),
    "scan": lambda catalog: loaded(catalog).scan().to_arrow(),
    "files": lambda catalog: loaded(catalog).files(sizes=True).num_rows,
    "tree": lambda catalog: str(loaded(catalog).tree()).replace(f"{PLACE}/t", ""),
    "audit": lambda catalog: loaded(catalog).audit(),
    "verify": lambda catalog: loaded(catalog).verify(),
    "append": lambda catalog: loaded(catalog).append(ROWS),
    "delete": lambda catalog: loaded(catalog).delete("id = 2"),
    "overwrite": lambda catalog: loaded(catalog).overwrite(ROWS, "id = 2"),
    "upsert": lambda catalog: loaded(catalog).upsert(ROWS, ["id"]),
    "compact": lambda catalog: loaded(catalog).compact(),
    "maintain": lambda catalog: loaded(catalog).maintain(),
    "plan": lambda catalog: iceberg.plan_conversion(loaded(catalog), key_id="next", data_keys=True),
    "encrypt": lambda catalog: iceberg.encrypt_table(loaded(catalog), key_id="lake"),
    "rekey": lambda catalog: iceberg.rekey_table(loaded(catalog), key_id="next", data_keys=True),
    "decrypt": lambda catalog: iceberg.decrypt_table(loaded(catalog)),
    "relocate": lambda catalog: iceberg.relocate_table(loaded(catalog), f"{PLACE}/u"),
    "expire": lambda catalog: iceberg.expire_snapshots(loaded(catalog)),
    "clean": lambda catalog: iceberg.clean(loaded(catalog)),
    "change without a catalog": lambda catalog: in_place(catalog).append(ROWS),
    "command audit": command("iceberg", "audit"),
    "command verify": command("iceberg", "verify", "--json"),
    "command expire": command("iceberg", "expire", "--json"),
    "command audit of all": command("audit"),
}


@pytest.fixture(scope="module", params=[True, False], ids=["encrypted", "plaintext"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    yield Table(request.param)
    STORE.clear()


def damaged(name: str, how: str) -> None:
    data = STORE[name].getvalue()
    del STORE[name]
    if how != "missing":
        content = {"cut": data[: len(data) // 2], "other": b"not a file of a table", "longer": data + b"x"}[how]
        with MemoryFileSystem().open(name, "wb") as file:
            file.write(content)


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_error_and_no_report_of_a_table_shows_the_password_of_its_location(
    table: Table, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    choose = random.Random(name)
    said = []
    for _ in range(6):
        catalog = table.restored()
        file = choose.choice(table.names)
        damaged(file, choose.choice(("missing", "cut", "other", "longer")))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                found = OPERATIONS[name](catalog)
                said += [repr(found), str(found)]
                said += [json.dumps(found.to_dict())] if hasattr(found, "to_dict") else []
            except (Exception, SystemExit) as error:
                said += ["".join(traceback.format_exception(error)), repr(error)]
        said += [str(each.message) for each in warned]
    printed = capsys.readouterr()
    for each in (*said, printed.out, printed.err):
        assert not any(secret in str(each) for secret in SECRETS), each


def test_every_error_of_ags1_is_without_the_secrets_of_urls() -> None:
    choose = random.Random(0)
    for _ in range(200):
        scheme = choose.choice(["https", "sftp", "ftp", "hdfs", "s3", "memory", "abfss"])
        name = choose.choice(["X-Amz-Signature", "sig", "X-Goog-Credential", "X-Amz-Security-Token", "token"])
        url = f"{scheme}://{SECRETS[0]}:{SECRETS[1]}@host/t/metadata/v1.metadata.json?x=1&{name}={SECRETS[1]}"
        text = choose.choice(["{}: is missing", "the file {!r} names it", "({}) could not be read", "{}"]).format(url)
        kind = choose.choice([Ags1Error, *Ags1Error.__subclasses__()])
        error = kind(text)
        assert not any(secret in str(error) + repr(error) for secret in SECRETS), error
        assert "host/t/metadata/v1.metadata.json" in str(error)
    container = "abfss://raw@account.dfs.core.windows.net/t: is missing"
    assert str(Ags1Error(container)) == container


def test_a_message_of_a_catalog_repeats_no_token_that_its_server_repeats() -> None:
    tokens = ("TOKEN-of-theirs", "client:CREDENTIAL-of-theirs")
    text = json.dumps({"error": {"type": "NotAuthorized", "message": f"{tokens[0]} of {tokens[1]} has expired"}})

    class Session:
        def request(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(status_code=403, text=text)

    properties = dict(zip(("token", "credential"), tokens, strict=True))
    table = object.__new__(RestTable)
    table.__dict__ |= {
        "name": "db.t", "_token": None, "_catalog": SimpleNamespace(properties=properties, _session=Session()),
    }  # fmt: skip
    with pytest.raises(PermissionError, match=r"NotAuthorized.*has expired") as caught:
        table._ask("GET", "https://catalog/v1/t")
    assert not any(each in "".join(traceback.format_exception(caught.value)[-1:]) for each in tokens)
