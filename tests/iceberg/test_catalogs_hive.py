"""Commits to a Hive metastore that Iceberg Java uses too: it reads what ags1 commits, and nobody's commit is lost."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from ags1 import iceberg
from ags1.errors import AuthenticationError, ConflictError
from ags1.iceberg.catalogs import CatalogTable, catalog_table
from ags1.iceberg.catalogs.successor import java_form
from ags1.iceberg.metadata.metadata_document import text_hash
from ags1.kms import MemoryKms
from tests.iceberg.catalog_cases import changed, check_log, check_rekeys, create_in, fields_of, metadata_files, race
from tests.iceberg.test_cli import Run, run  # noqa: F401
from tests.iceberg.warehouse import HiveLake, SparkReadError, SparkTables, local_path

HASH, KEY_ID = "metadata_hash", "encryption.key-id"


class HiveCase:
    """A table of Java's in the metastore."""

    def __init__(self, lake: HiveLake, name: str) -> None:
        self.lake = lake
        self.name = name
        self.catalog = lake.catalog()

    def open(self) -> CatalogTable:
        return catalog_table(self.lake.catalog(), ("tables", self.name))

    @property
    def parameters(self) -> dict[str, str]:
        with self.catalog._client as client:
            found: dict[str, str] = client.get_table("tables", self.name).parameters
        return found

    def set_parameters(self, **parameters: str | None) -> None:
        with self.catalog._client as client:
            table = client.get_table("tables", self.name)
            table.parameters = {
                name: value for name, value in {**table.parameters, **parameters}.items() if value is not None
            }
            client.alter_table("tables", self.name, table)

    @property
    def directory(self) -> Path:
        return self.lake.directory.resolve() / "tables.db" / self.name

    def locks(self) -> list[Any]:
        from hive_metastore.ttypes import ShowLocksRequest

        with self.catalog._client as client:
            return [each for each in client.show_locks(ShowLocksRequest()).locks if each.tablename == self.name]


@pytest.fixture
def make(hive_lake: HiveLake, request: pytest.FixtureRequest) -> Iterator[Callable[..., HiveCase]]:
    """What makes a table with two rows; it is dropped at the end."""
    made: list[str] = []

    def make_table(**options: Any) -> HiveCase:
        name = f"hive_{abs(hash(request.node.name)) % 10**9}_{len(made)}"
        made.append(name)
        hive_lake.create(name, "id BIGINT, s STRING", **options)
        hive_lake.sql(f"INSERT INTO {name} VALUES (1, 'one'), (2, 'zwölf')")
        return HiveCase(hive_lake, name)

    yield make_table
    for name in made:
        with contextlib.suppress(SparkReadError):
            hive_lake.sql(f"DROP TABLE {name}")


def test_java_reads_and_writes_after_a_commit(make: Callable[..., HiveCase]) -> None:
    case = make()
    table = case.open()
    state = table.load()
    assert state.table_key_id == "keyA"
    assert state.metadata_hash == case.parameters[HASH] == text_hash(state.document.text)
    after = table.commit(state, changed(state, note="größer", **{"write.merge.mode": None}))
    parameters = case.parameters
    assert parameters["metadata_location"] == after.metadata_location
    assert parameters["previous_metadata_location"] == state.metadata_location
    assert parameters[KEY_ID] == "keyA"
    assert parameters["note"] == "größer"
    assert "write.merge.mode" not in parameters
    # Java refuses a hash that is not that of the metadata as it writes it.
    assert parameters[HASH] == after.metadata_hash
    assert case.lake.rows(case.name, "id") == [[1], [2]]
    case.lake.sql(f"INSERT INTO {case.name} VALUES (3, 'three')")
    assert case.lake.rows(case.name, "id, _row_id") == [[1, 0], [2, 1], [3, 2]]
    loaded = case.open().load()
    check_log(loaded, state, after)
    assert loaded.document.fields["properties"]["note"] == "größer"
    assert case.locks() == []


def test_the_text_is_what_java_writes(hive_lake: HiveLake, spark_tables: SparkTables) -> None:
    compared = 0
    for table in spark_tables.values():
        text = table.metadata_path.read_text()
        if hive_lake.json_of(text) == text:
            shuffled = json.loads(text)
            shuffled = {name: shuffled[name] for name in sorted(shuffled)}
            ordered, is_javas = java_form(shuffled)
            made = json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))
            if is_javas:
                assert made == text, table.name
                compared += 1
    assert compared > 10


def test_java_parses_what_is_made_here_into_the_same_text(hive_lake: HiveLake) -> None:
    from ags1.iceberg.catalogs.successor import first

    fields = fields_of("file:/lake/t", odd='\\u00e4 \u007f \u2028 \U0001f511 " \b')
    made = first(fields)
    assert made.metadata_hash is not None
    assert hive_lake.json_of(made.document.text) == made.document.text


@pytest.mark.parametrize("locks", ["true", "false"])
def test_of_many_committers_at_once_exactly_one_wins(make: Callable[..., HiveCase], locks: str) -> None:
    case = make(properties={"engine.hive.lock-enabled": locks})
    for _ in range(3):
        before = metadata_files(case.directory)
        refused, made = race([case.open() for _ in range(4)], lambda state, who: changed(state, who=str(who)))
        assert (refused, len(made)) == (3, 1)
        assert case.parameters["metadata_location"] == made[0].metadata_location
        assert case.parameters[HASH] == made[0].metadata_hash
        assert len(metadata_files(case.directory) - before) == 1
    assert case.lake.rows(case.name, "id") == [[1], [2]]
    assert case.locks() == []


def test_a_commit_between_the_look_and_the_swap_is_seen_by_the_metastore(
    make: Callable[..., HiveCase], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ags1.iceberg.catalogs import hive

    case = make(properties={"engine.hive.lock-enabled": "false"})
    mine, other = case.open(), case.open()
    state = mine.load()
    real = hive._changed_parameters
    winners: list[Any] = []

    def late(*arguments: Any) -> dict[str, str]:
        if not winners:
            winners.append(None)
            winners[0] = other.commit(state, changed(state, who="other"))
        return real(*arguments)

    monkeypatch.setattr(hive, "_changed_parameters", late)
    with pytest.raises(ConflictError, match="another writer has committed"):
        mine.commit(state, changed(state, who="me"))
    assert case.parameters["metadata_location"] == winners[0].metadata_location
    assert case.parameters[HASH] == winners[0].metadata_hash
    assert case.parameters["who"] == "other"


def test_java_commits_all_the_while_and_nothing_is_lost(make: Callable[..., HiveCase]) -> None:
    case = make(properties={"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "200"})
    done = threading.Event()
    conflicts = commits = 0

    def write() -> None:
        try:
            for number in range(3, 8):
                case.lake.sql(f"INSERT INTO {case.name} VALUES ({number}, 'more')")
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    table = case.open()
    while not done.is_set() and commits + conflicts < 40:
        state = table.load()
        try:
            table.commit(state, changed(state, **{f"commit-{commits}": "x"}))
            commits += 1
        except ConflictError:
            conflicts += 1
    writer.join()
    assert case.lake.rows(case.name, "id") == [[number] for number in range(1, 8)]
    properties = table.load().document.fields["properties"]
    assert commits
    assert all(f"commit-{number}" in properties for number in range(commits))


def test_a_commit_of_a_state_that_java_has_replaced_is_refused(make: Callable[..., HiveCase]) -> None:
    case = make()
    table = case.open()
    state = table.load()
    case.lake.sql(f"INSERT INTO {case.name} VALUES (3, 'three')")
    before = metadata_files(case.directory)
    parameters = case.parameters
    with pytest.raises(ConflictError, match="another writer has committed"):
        table.commit(state, changed(state, a="1"))
    assert metadata_files(case.directory) == before
    assert case.parameters == parameters


def test_a_stale_hash_is_never_left(make: Callable[..., HiveCase]) -> None:
    case = make()
    table = case.open()
    state = table.load()
    # Java would drop the field when it writes, so what it would hash is not known.
    after = table.commit(state, {**changed(state), "of-tomorrow": 1})
    assert after.metadata_hash is None
    assert HASH not in case.parameters
    assert case.lake.rows(case.name, "id") == [[1], [2]]
    plain = make(key_id=None, properties={"format-version": "3"})
    table = plain.open()
    state = table.load()
    assert (state.table_key_id, state.metadata_hash) == (None, None)
    table.commit(state, changed(state, a="1"))
    assert HASH not in plain.parameters
    # Enabled, then disabled again: what the metastore trusts follows.
    state = table.load()
    state = table.commit(state, changed(state, **{KEY_ID: "keyA", "encryption.data-key-length": "32"}))
    parameters = plain.parameters
    assert (parameters[KEY_ID], parameters["encryption.data-key-length"]) == ("keyA", "32")
    assert parameters[HASH] == state.metadata_hash
    plain.lake.sql(f"INSERT INTO {plain.name} VALUES (3, 'encrypted')")
    state = table.load()
    table.commit(state, changed(state, **{KEY_ID: None, "encryption.data-key-length": None}))
    assert not {KEY_ID, HASH, "encryption.data-key-length"} & plain.parameters.keys()


def test_what_the_metastore_vouches_for_is_compared(make: Callable[..., HiveCase]) -> None:
    case = make()
    path = local_path(case.parameters["metadata_location"])
    text = path.read_text()
    path.write_text(text.replace("zstd", "gzip"))
    with pytest.raises(AuthenticationError, match="the catalog has"):
        case.open().load()
    case.set_parameters(metadata_hash=None)
    assert case.open().load().metadata_hash is None
    path.write_text(text.replace('"encryption.key-id":"keyA"', '"encryption.key-id":"keyB"'))
    with pytest.raises(AuthenticationError, match="has the master key 'keyB', and the catalog has 'keyA'"):
        case.open().load()
    path.write_text(text)


def test_a_table_that_is_made_here_is_javas_too(hive_lake: HiveLake) -> None:
    location = (hive_lake.directory.resolve() / "made_here").as_uri()
    catalog = hive_lake.catalog()
    table = create_in(catalog, ("tables", "made_here"), fields_of(location, **{KEY_ID: "keyA"}))
    try:
        with pytest.raises(FileExistsError, match="already"):
            create_in(catalog, ("tables", "made_here"), fields_of(location))
        assert len(metadata_files(hive_lake.directory / "made_here")) == 1
        hive_lake.sql("INSERT INTO made_here VALUES (1, 'one')")
        assert hive_lake.rows("made_here") == [[1, "one"]]
        state = table.load()
        assert state.table_key_id == "keyA"
        assert state.document.fields["snapshots"][0]["key-id"]
        with pytest.raises(OSError, match="refused the table"):
            create_in(catalog, ("nowhere", "made_here"), fields_of(location))
    finally:
        hive_lake.sql("DROP TABLE made_here")


@pytest.mark.parametrize("branch", [None, "side"])
def test_java_opens_an_encrypted_table_that_has_no_current_snapshot(
    hive_lake: HiveLake, table_kms: MemoryKms, branch: str | None
) -> None:
    name = f"without_snapshot_{branch}".lower()
    hive_lake.create(name, "id BIGINT, s STRING", key_id=None)
    try:
        if branch is not None:
            hive_lake.sql(f"ALTER TABLE {name} CREATE BRANCH {branch}")
            hive_lake.sql(f"INSERT INTO tables.{name}.branch_{branch} VALUES (1, 'one')")
        table = catalog_table(hive_lake.catalog(), ("tables", name))
        assert table.load().document.fields["format-version"] == 2
        iceberg.encrypt_table(table, key_id="keyA", kms=table_kms)
        assert HiveCase(hive_lake, name).parameters[HASH] == table.load().metadata_hash
        assert hive_lake.rows(name) == []
        assert branch is None or hive_lake.rows(name, version=branch) == [[1, "one"]]
        hive_lake.sql(f"INSERT INTO {name} VALUES (2, 'two')")
        assert hive_lake.rows(name) == [[2, "two"]]
    finally:
        hive_lake.sql(f"DROP TABLE {name}")


def test_a_lock_that_others_hold_is_waited_for_and_one_that_was_ended_is_noticed(
    make: Callable[..., HiveCase], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType, UnlockRequest

    from ags1.iceberg.catalogs import hive

    case = make()
    table = case.open()
    state = table.load()
    before = metadata_files(case.directory)
    request = LockRequest(
        [LockComponent(LockType.EXCLUSIVE, LockLevel.TABLE, "tables", case.name)], user="x", hostname="y"
    )
    with case.catalog._client as client:
        held = client.lock(request).lockid
    monkeypatch.setattr(hive, "_LOCK_SECONDS", 0.1)
    with pytest.raises(OSError, match="has held the table's lock"):
        table.commit(state, changed(state, a="1"))
    assert [each.lockid for each in case.locks()] == [held]
    monkeypatch.setattr(hive, "_LOCK_SECONDS", 180.0)
    waiting = threading.Event()
    real = hive.time.sleep

    def sleep(seconds: float) -> None:
        waiting.set()
        real(seconds)

    monkeypatch.setattr(hive.time, "sleep", sleep)

    def release() -> None:
        waiting.wait()
        with case.lake.catalog()._client as client:
            client.unlock(UnlockRequest(lockid=held))

    releasing = threading.Thread(target=release)
    releasing.start()
    state = table.commit(state, changed(state, a="1"))
    releasing.join()
    assert len(metadata_files(case.directory) - before) == 1
    real_keep = hive.HiveTable._keep

    def ended(self: Any, client: Any, number: int) -> None:
        client.unlock(UnlockRequest(lockid=number))
        real_keep(self, client, number)

    monkeypatch.setattr(hive.HiveTable, "_keep", ended)
    with pytest.raises(OSError, match="ended the table's lock"):
        table.commit(state, changed(state, a="2"))
    assert len(metadata_files(case.directory) - before) == 1
    assert case.locks() == []


class Cutting:
    """A relay to the metastore that breaks the connection at the request for a commit, before or after it is done."""

    def __init__(self, metastore: str, *, after: bool) -> None:
        host, _, port = metastore.removeprefix("thrift://").partition(":")
        self._target = (host, int(port))
        self._after = after
        self.cuts = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"thrift://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            cut = False
            while True:
                # Whichever speaks next, however long the other takes.
                for each in select.select([client, server], [], [])[0]:
                    if not (data := each.recv(1 << 20)):
                        return
                    cut = cut or (each is client and b"alter_table_with_environment_context" in data)
                    if cut and (each is server) == self._after:
                        self.cuts += 1
                        return
                    (server if each is client else client).sendall(data)

    def close(self) -> None:
        self._server.close()


@pytest.mark.parametrize("after", [True, False])
def test_a_connection_that_breaks_during_the_swap_is_looked_after(make: Callable[..., HiveCase], after: bool) -> None:
    case = make()
    relay = Cutting(case.lake.metastore, after=after)
    try:
        catalog = case.lake.catalog()
        catalog.properties["uri"] = relay.url
        table = catalog_table(catalog, ("tables", case.name))
        state = table.load()
        if after:
            made = table.commit(state, changed(state, a="1"))
            assert case.parameters["metadata_location"] == made.metadata_location
        else:
            with pytest.raises(OSError, match=r"not known whether the commit of .* is made"):
                table.commit(state, changed(state, a="1"))
            assert case.parameters["metadata_location"] == state.metadata_location
        assert relay.cuts == 1
        assert case.lake.rows(case.name, "id") == [[1], [2]]
    finally:
        relay.close()


def test_a_metastore_that_is_not_there_leaves_nothing(make: Callable[..., HiveCase]) -> None:
    case = make()
    catalog = case.lake.catalog()
    table = catalog_table(catalog, ("tables", case.name))
    state = table.load()
    before = metadata_files(case.directory)
    with socket.create_server(("127.0.0.1", 0)) as free:
        catalog.properties["uri"] = f"thrift://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ConnectionError, match="the metastore cannot be reached"):
        table.commit(state, changed(state, a="1"))
    assert metadata_files(case.directory) == before
    with pytest.raises(FileNotFoundError, match="no such table"):
        catalog_table(case.lake.catalog(), ("tables", "none")).load()


def test_the_command_refuses_metadata_that_the_metastore_does_not_vouch_for(
    make: Callable[..., HiveCase],
    run: Run,  # noqa: F811
) -> None:
    case = make()
    named = (
        f"tables.{case.name}",
        "--catalog",
        "lake",
        "--property=type=hive",
        f"--property=uri={case.lake.metastore}",
    )
    assert run("verify", *named, "--expected-key-id", "keyA").code == 0
    assert run("verify", *named, "--expected-key-id", "keyB").code == 3
    assert len(run("scan", *named, "--format", "json").records) == 2
    path = local_path(case.parameters["metadata_location"])
    text = path.read_text()
    fields = json.loads(text)
    path.write_text(json.dumps({**fields, "properties": {**fields["properties"], "note": "forged"}}))
    for action in ("inspect", "files", "scan", "audit", "verify"):
        refused = run(action, *named)
        assert (refused.code, refused.out) == (1, "")
        assert "the file was changed" in refused.err
    path.write_text(text)


@pytest.mark.parametrize("kind", ["Hive", "REST"])
def test_tables_are_rekeyed_and_maintained(kind: str, hive_lake: HiveLake) -> None:
    if kind == "Hive":
        check_rekeys(hive_lake.catalog(), "tables", hive_lake.directory.resolve())
    else:
        check_rekeys(RestCatalog("rest", uri=f"{hive_lake.rest}/whole"), "db", hive_lake.directory.resolve() / "rest")
