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
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hive_metastore import ttypes
from pyiceberg.catalog.hive import HiveCatalog, SchemaToHiveConverter
from pyiceberg.schema import visit
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType
from thrift.Thrift import TException
from thrift.transport.TTransport import TTransportException

from ags1.errors import AuthenticationError
from ags1.expected import check_hash
from ags1.iceberg.catalogs._table import (
    LOCATION,
    PREVIOUS,
    PointerTable,
    RefusedError,
    TableState,
    columns_of,
    read_state,
)
from ags1.iceberg.catalogs.successor import NewMetadata, javas_hash
from ags1.iceberg.metadata.metadata_document import (
    DATA_KEY_LENGTH,
    KEY_ID,
    current_of,
    locations_of,
    properties_of,
)

_HASH = "metadata_hash"
_LOCKS = "engine.hive.lock-enabled"
_LOCK_SECONDS = 180.0
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0
# Length in characters of the metastore's shortest value column, over the databases that it supports.
_LONGEST_VALUE = 4000
# Types that PyIceberg's converter does not know.
_NANOSECONDS: dict[Any, str] = {TimestampNanoType: "timestamp", TimestamptzNanoType: "timestamp with local time zone"}
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
            hashes = (state.document.hash, javas_hash(fields))
            if not any(each is not None and hmac.compare_digest(each, metadata_hash) for each in hashes):
                raise AuthenticationError(
                    f"{state.metadata_location}: has the hash {hashes[0]}, and the catalog has {metadata_hash} for "
                    f"{self.name}: the file was changed, or a writer has left the hash of an older one"
                )
        locations = locations_of(table.sd.location, parameters)
        return TableState(state.metadata_location, state.document, key_id, metadata_hash, locations)

    def state_of(self, location: str, written: NewMetadata) -> TableState:
        """Return the state with the master key and the hash that this catalog stores."""
        key_id = properties_of(written.document.fields).get(KEY_ID) or None
        return TableState(location, written.document, key_id, None if key_id is None else written.metadata_hash)

    def swap(self, base: TableState, new: TableState) -> None:
        """Put the new metadata file in place of ``base``, under the lock that the table wants."""
        with self._connected() as client, self._locked(client, base) as keep:
            table = self._get(client)
            location = self._pointer(table.parameters)
            if location != base.metadata_location:
                raise self._conflict(base.metadata_location, location)
            table.parameters = _changed_parameters(table.parameters, base, new)
            _describe(table, base.document.fields, new.document.fields)
            expected = {"expected_parameter_key": LOCATION, "expected_parameter_value": base.metadata_location}
            context = ttypes.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true", **expected})
            keep()
            self.sending()
            try:
                client.alter_table_with_environment_context(self._database, self._table, table, context)
            except (ttypes.MetaException, ttypes.InvalidOperationException, ttypes.NoSuchObjectException) as error:
                # The metastore can fail after the change, in its notifications.
                location = self._pointer(self._get(client).parameters)
                if location == new.metadata_location:
                    return
                if location != base.metadata_location:
                    raise self._conflict(base.metadata_location, location) from error
                raise RefusedError(f"{self.name}: the metastore refused the commit: {error.message}") from error

    def insert(self, new: TableState) -> None:
        """Register the table, which the metastore must not have yet."""
        now = int(time.time())
        table = ttypes.Table(
            dbName=self._database,
            tableName=self._table,
            owner=getpass.getuser(),
            createTime=now,
            lastAccessTime=now,
            sd=ttypes.StorageDescriptor(
                inputFormat="org.apache.hadoop.mapred.FileInputFormat",
                outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
                serdeInfo=ttypes.SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"),
            ),
            tableType="EXTERNAL_TABLE",
            parameters=_changed_parameters({"EXTERNAL": "TRUE", "table_type": "ICEBERG"}, None, new),
        )
        _describe(table, {}, new.document.fields)
        with self._connected() as client:
            self.sending()
            try:
                client.create_table(table)
            except ttypes.AlreadyExistsException as error:
                raise self._taken() from error
            except (ttypes.InvalidObjectException, ttypes.MetaException, ttypes.NoSuchObjectException) as error:
                raise RefusedError(f"{self.name}: the metastore refused the table: {error.message}") from error

    # -- the metastore -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            with self._catalog._create_hive_client(self._catalog.properties) as client:
                yield client
        except TTransportException as error:
            raise ConnectionError(f"{self.name}: the metastore cannot be reached: {error.message}") from error

    def _get(self, client: Any) -> Any:
        try:
            return client.get_table(self._database, self._table)
        except ttypes.NoSuchObjectException:
            raise FileNotFoundError(2, "the catalog has no such table", self.name) from None

    @contextlib.contextmanager
    def _locked(self, client: Any, base: TableState) -> Iterator[Callable[[], None]]:
        """Hold Hive's lock of the table, unless it is switched off; yield what renews it just before its use.

        The metastore ends a lock without a heartbeat for some minutes.
        """
        properties = self._catalog.properties
        usual = properties.get(_LOCKS, properties.get(f"iceberg.{_LOCKS}", "true"))
        if str(properties_of(base.document.fields).get(_LOCKS, usual)).lower() != "true":
            yield lambda: None
            return
        try:
            found = client.lock(self._catalog._create_lock_request(self._database, self._table))
        except ttypes.MetaException as error:
            raise RefusedError(
                f"{self.name}: the metastore gives no lock ({error.message}). If nobody commits under its locks, set "
                f"{_LOCKS}=false for the catalog, and for every other writer"
            ) from error
        number, wait, end = found.lockid, _FIRST_WAIT, time.monotonic() + _LOCK_SECONDS
        try:
            while found.state == ttypes.LockState.WAITING and time.monotonic() < end:
                time.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
                found = client.check_lock(ttypes.CheckLockRequest(lockid=number))
            if found.state != ttypes.LockState.ACQUIRED:
                raise RefusedError(
                    f"{self.name}: another writer has held the table's lock in the metastore for "
                    f"{_LOCK_SECONDS:.0f} seconds: try again; a writer that was killed loses it after some minutes"
                )
            yield lambda: self._keep(client, number)
        finally:
            # The commit stays valid; the metastore ends the lock by itself.
            with contextlib.suppress(TException, OSError):
                client.unlock(ttypes.UnlockRequest(lockid=number))

    def _keep(self, client: Any, number: int) -> None:
        """Send a heartbeat for a lock; a RefusedError if the metastore ended it."""
        try:
            client.heartbeat(ttypes.HeartbeatRequest(lockid=number))
        except (ttypes.NoSuchLockException, ttypes.NoSuchTxnException, ttypes.TxnAbortedException) as error:
            raise RefusedError(f"{self.name}: the metastore ended the table's lock meanwhile: try again") from error


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
    schema = current_of(fields, "schemas")
    found: dict[str, str | None] = {
        "uuid": fields.get("table-uuid"),
        "snapshot-count": str(len(snapshots)),
        "current-snapshot-id": str(snapshot["snapshot-id"]) if snapshot else None,
        "current-snapshot-timestamp-ms": str(snapshot["timestamp-ms"]) if snapshot else None,
        "current-snapshot-summary": _short(summary) if snapshot else None,
        "current-schema": _short(schema) if schema else None,
        "default-partition-spec": _default(fields, "partition-specs"),
        "default-sort-order": _default(fields, "sort-orders"),
    }
    return found | {name: summary.get(each) for name, each in _STATISTICS.items()}


def _default(fields: Mapping[str, Any], name: str) -> str | None:
    found = current_of(fields, name)
    return _short(found) if found.get("fields") else None


def _short(value: Any) -> str | None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _LONGEST_VALUE else None


def _describe(table: Any, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Set Hive's columns and location from the new metadata."""
    table.sd.location = after.get("location")
    if current_of(before, "schemas") != current_of(after, "schemas"):
        table.sd.cols = [
            ttypes.FieldSchema(each.name, visit(each.field_type, _HiveTypes(False)), each.doc)
            for each in columns_of(after)
        ]


class _HiveTypes(SchemaToHiveConverter):
    def primitive(self, primitive: Any) -> str:
        try:
            made: str = super().primitive(primitive)
            return made
        except KeyError:
            # Types that Hive lacks are shown as binary.
            return _NANOSECONDS.get(type(primitive), "binary")
