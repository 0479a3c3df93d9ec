"""The Hive metastore, the catalog that Iceberg Java reads encrypted tables from.

    parameters of the Hive table         changed in one alter_table
    metadata_location                    only if it is what the commit was made from
    previous_metadata_location
    encryption.key-id, ...               what readers trust, whatever the metadata file says
    metadata_hash                        of this very file, or removed; never of another file

Two mechanisms guard a commit: Hive's lock, which every writer holds that does not use the second, and the expected
value of metadata_location, which servers compare since Hive 2.3.10 and 4.0. Both are used, unless the table or the
catalog has ``engine.hive.lock-enabled=false``, as in Java. Sources: Iceberg Java's HiveTableOperations, MetastoreLock
and HMSTablePropertyHelper.
"""

from __future__ import annotations

import contextlib
import getpass
import hmac
import json
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg.catalog.hive import HiveCatalog

from ags1.errors import AuthenticationError
from ags1.expected import check_hash
from ags1.iceberg.catalogs._table import (
    LOCATION,
    PREVIOUS,
    PointerTable,
    RefusedError,
    TableState,
    current_schema,
    hive_columns,
    read_state,
)
from ags1.iceberg.catalogs.successor import NewMetadata, javas_hash
from ags1.iceberg.metadata.metadata_document import (
    DATA_KEY_LENGTH,
    DATA_PATH,
    KEY_ID,
    METADATA_PATH,
    properties_of,
    text_hash,
)

_HASH = "metadata_hash"
_LOCKS = "engine.hive.lock-enabled"
_LOCK_SECONDS = 180.0
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0
# Length in characters of the metastore's shortest value column, over the databases that it supports.
_LONGEST_VALUE = 4000
# Hive's statistics by their names in the summary of an Iceberg snapshot.
_STATISTICS = {"numFiles": "total-data-files", "numRows": "total-records", "totalSize": "total-files-size"}


class HiveTable(PointerTable):
    """A table in a HiveCatalog. Every call has a connection of its own."""

    def __init__(self, catalog: HiveCatalog, identifier: tuple[str, ...], io_properties: Mapping[str, str]) -> None:
        super().__init__(catalog, identifier, io_properties)
        self._database, self._table = catalog.identifier_to_database_and_table(identifier)

    def _load(self) -> TableState:
        """Request the table from the metastore, read its metadata file, and compare that with its hash."""
        with self._connected() as client:
            table = self._get(client)
        parameters = table.parameters
        key_id, metadata_hash = parameters.get(KEY_ID) or None, parameters.get(_HASH) or None
        state = read_state(self._pointer(parameters), self.io_properties)
        fields = state.document.fields
        said = properties_of(fields).get(KEY_ID) or None
        if key_id is not None and said != key_id:
            raise AuthenticationError(
                f"{state.metadata_location}: has the master key {said!r}, and the catalog has {key_id!r} for "
                f"{self.name}: somebody changed the file"
            )
        if metadata_hash is not None:
            check_hash(metadata_hash)
            # The hash of the file, or of the text that Java would make of another writer's file.
            hashes = (text_hash(state.document.text), javas_hash(fields))
            if not any(each is not None and hmac.compare_digest(each, metadata_hash) for each in hashes):
                raise AuthenticationError(
                    f"{state.metadata_location}: has the hash {hashes[0]}, and the catalog has {metadata_hash} for "
                    f"{self.name}: the file was changed, or a writer has left the hash of an older one"
                )
        places = (table.sd.location, *(parameters.get(each) for each in (DATA_PATH, METADATA_PATH)))
        locations = tuple(each for each in places if each)
        return TableState(state.metadata_location, state.document, key_id, metadata_hash, locations)

    def state_of(self, location: str, written: NewMetadata) -> TableState:
        """Return the state with the master key and the hash that this catalog stores."""
        key_id = properties_of(written.document.fields).get(KEY_ID) or None
        return TableState(location, written.document, key_id, None if key_id is None else written.metadata_hash)

    def swap(self, base: TableState, new: TableState) -> None:
        from hive_metastore.ttypes import (
            EnvironmentContext,
            InvalidOperationException,
            MetaException,
            NoSuchObjectException,
        )

        with self._connected() as client, self._locked(client, base) as lock:
            table = self._get(client)
            location = self._pointer(table.parameters)
            if location != base.metadata_location:
                raise self._conflict(base.metadata_location, location)
            table.parameters = _changed_parameters(table.parameters, base, new)
            _describe(table, base.document.fields, new.document.fields)
            expected = {"expected_parameter_key": LOCATION, "expected_parameter_value": base.metadata_location}
            context = EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true", **expected})
            lock.keep()
            self.sending()
            try:
                client.alter_table_with_environment_context(self._database, self._table, table, context)
            except (MetaException, InvalidOperationException, NoSuchObjectException) as error:
                # The metastore can fail after the change, in its notifications.
                location = self._pointer(self._get(client).parameters)
                if location == new.metadata_location:
                    return
                if location != base.metadata_location:
                    raise self._conflict(base.metadata_location, location) from error
                raise RefusedError(f"{self.name}: the metastore refused the commit: {error.message}") from error

    def insert(self, new: TableState) -> None:
        from hive_metastore.ttypes import (
            AlreadyExistsException,
            InvalidObjectException,
            MetaException,
            NoSuchObjectException,
            SerDeInfo,
            StorageDescriptor,
            Table,
        )

        now = int(time.time())
        table = Table(
            dbName=self._database,
            tableName=self._table,
            owner=getpass.getuser(),
            createTime=now,
            lastAccessTime=now,
            sd=StorageDescriptor(
                inputFormat="org.apache.hadoop.mapred.FileInputFormat",
                outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
                serdeInfo=SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"),
            ),
            tableType="EXTERNAL_TABLE",
            parameters=_changed_parameters({"EXTERNAL": "TRUE", "table_type": "ICEBERG"}, None, new),
        )
        _describe(table, {}, new.document.fields)
        with self._connected() as client:
            self.sending()
            try:
                client.create_table(table)
            except AlreadyExistsException as error:
                raise self._taken() from error
            except (InvalidObjectException, MetaException, NoSuchObjectException) as error:
                raise RefusedError(f"{self.name}: the metastore refused the table: {error.message}") from error

    # -- the metastore -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        from thrift.transport.TTransport import TTransportException

        try:
            with self._catalog._create_hive_client(self._catalog.properties) as client:
                yield client
        except TTransportException as error:
            raise ConnectionError(f"{self.name}: the metastore cannot be reached: {error.message}") from error

    def _get(self, client: Any) -> Any:
        from hive_metastore.ttypes import NoSuchObjectException

        try:
            return client.get_table(self._database, self._table)
        except NoSuchObjectException:
            raise FileNotFoundError(2, "the catalog has no such table", self.name) from None

    @contextlib.contextmanager
    def _locked(self, client: Any, base: TableState) -> Iterator[_Lock]:
        said = properties_of(base.document.fields).get(_LOCKS)
        if said is None:
            properties = self._catalog.properties
            said = properties.get(_LOCKS, properties.get(f"iceberg.{_LOCKS}", "true"))
        lock = _Lock(client, self._database, self._table)
        if str(said).lower() == "true":
            lock.acquire()
        try:
            yield lock
        finally:
            lock.release()


class _Lock:
    """Hive's lock of a table. The metastore ends a lock without a heartbeat for some minutes."""

    def __init__(self, client: Any, database: str, table: str) -> None:
        self._client = client
        self._database, self._table = database, table
        self._id: int | None = None

    def acquire(self) -> None:
        from hive_metastore.ttypes import (
            CheckLockRequest,
            LockComponent,
            LockLevel,
            LockRequest,
            LockState,
            LockType,
            MetaException,
        )

        component = LockComponent(LockType.EXCLUSIVE, LockLevel.TABLE, self._database, self._table)
        request = LockRequest([component], user=getpass.getuser(), hostname=socket.gethostname())
        name = f"{self._database}.{self._table}"
        try:
            found = self._client.lock(request)
        except MetaException as error:
            raise RefusedError(
                f"{name}: the metastore gives no lock ({error.message}). If nobody commits under its locks, set "
                f"{_LOCKS}=false for the catalog, and for every other writer"
            ) from error
        self._id = found.lockid
        wait, end = _FIRST_WAIT, time.monotonic() + _LOCK_SECONDS
        while found.state == LockState.WAITING and time.monotonic() < end:
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
            found = self._client.check_lock(CheckLockRequest(lockid=self._id))
        if found.state != LockState.ACQUIRED:
            self.release()
            raise RefusedError(
                f"{name}: another writer has held the table's lock in the metastore for {_LOCK_SECONDS:.0f} seconds: "
                "try again; a writer that was killed loses it after some minutes"
            )

    def keep(self) -> None:
        """Send a heartbeat for the lock just before its use; a RefusedError if the metastore ended it."""
        from hive_metastore.ttypes import HeartbeatRequest, NoSuchLockException, NoSuchTxnException, TxnAbortedException

        if self._id is None:
            return
        try:
            self._client.heartbeat(HeartbeatRequest(lockid=self._id))
        except (NoSuchLockException, NoSuchTxnException, TxnAbortedException) as error:
            raise RefusedError(
                f"{self._database}.{self._table}: the metastore ended the table's lock meanwhile: try again"
            ) from error

    def release(self) -> None:
        from hive_metastore.ttypes import UnlockRequest
        from thrift.Thrift import TException

        if self._id is not None:
            # The commit stays valid; the metastore ends the lock by itself.
            with contextlib.suppress(TException, OSError):
                self._client.unlock(UnlockRequest(lockid=self._id))
            self._id = None


def _changed_parameters(found: Mapping[str, str], base: TableState | None, new: TableState) -> dict[str, str]:
    """Return the Hive table's parameters with those of the new state; parameters of only the old state are removed."""
    fields = new.document.fields
    properties = properties_of(fields)
    obsolete = {_HASH, KEY_ID, DATA_KEY_LENGTH, *_summary_of_state({})}
    if base is not None:
        obsolete |= properties_of(base.document.fields).keys() - properties.keys()
    changed = {name: value for name, value in found.items() if name not in obsolete}
    changed |= {name: str(value) for name, value in properties.items()}
    changed |= {name: value for name, value in _summary_of_state(fields).items() if value is not None}
    changed[LOCATION] = new.metadata_location
    if base is not None:
        changed[PREVIOUS] = base.metadata_location
    if new.table_key_id is not None:
        changed[KEY_ID] = new.table_key_id
        if new.metadata_hash is not None:
            changed[_HASH] = new.metadata_hash
    return changed


def _summary_of_state(fields: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the parameters that describe a table to other users of Hive; None removes a parameter."""
    current = fields.get("current-snapshot-id")
    snapshots = fields.get("snapshots") or ()
    snapshot: Mapping[str, Any] = next((each for each in snapshots if each.get("snapshot-id") == current), {})
    summary = {name: value for name, value in (snapshot.get("summary") or {}).items() if name != "operation"}
    schema = current_schema(fields)
    found: dict[str, str | None] = {
        "uuid": fields.get("table-uuid"),
        "snapshot-count": str(len(snapshots)),
        "current-snapshot-id": str(snapshot["snapshot-id"]) if snapshot else None,
        "current-snapshot-timestamp-ms": str(snapshot["timestamp-ms"]) if snapshot else None,
        "current-snapshot-summary": _short(summary) if snapshot else None,
        "current-schema": _short(schema) if schema else None,
        "default-partition-spec": _default(fields, "partition-specs", "spec-id", "default-spec-id"),
        "default-sort-order": _default(fields, "sort-orders", "order-id", "default-sort-order-id"),
    }
    return found | {name: summary.get(each) for name, each in _STATISTICS.items()}


def _default(fields: Mapping[str, Any], name: str, key: str, wanted: str) -> str | None:
    for each in fields.get(name) or ():
        if each.get(key) == fields.get(wanted) and each.get("fields"):
            return _short(each)
    return None


def _short(value: Any) -> str | None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _LONGEST_VALUE else None


def _describe(table: Any, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Set Hive's columns and location from the new metadata."""
    from hive_metastore.ttypes import FieldSchema

    table.sd.location = after.get("location")
    schema = current_schema(after)
    if current_schema(before) != schema:
        table.sd.cols = [FieldSchema(name, kind, doc) for name, kind, doc in hive_columns(schema)]
