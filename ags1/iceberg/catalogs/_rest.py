"""REST catalogs: the server writes the metadata, so the client first checks that the server loses no keys.

    1  version, schemas, key entries                  nothing that readers use
    2  the snapshots, without a ref                   not used by readers yet
       load: are key-id and encryption-keys there?    no: the snapshots and keys are removed, and the commit refused
    3  refs, properties, what is removed              the commit

A server that drops a snapshot's ``key-id`` would leave a snapshot that can never be read. In this order the table never
has such a snapshot. A commit without encrypted snapshots is one request.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog.rest import RestCatalog

from ags1.errors import ConflictError, UnsupportedError
from ags1.iceberg.catalogs._table import CatalogTable, RefusedError, TableState
from ags1.iceberg.catalogs._updates import Update, Updates, keyed, refs_of, requirements_of, updates_of
from ags1.iceberg.metadata.metadata_document import DATA_PATH, METADATA_PATH, metadata_document, properties_of

_REFUSED = range(400, 500)
# Fields that a reader of an encrypted snapshot needs.
_NEEDED = ("key-id", "manifest-list", "first-row-id", "added-rows", "sequence-number")


class RestTable(CatalogTable):
    has_metadata_files = False
    identifier: tuple[str, ...]

    def __init__(self, catalog: RestCatalog, identifier: tuple[str, ...], io_properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self.identifier = identifier
        self._given = dict(io_properties)
        self._token: str | None = None
        self.name = ".".join(identifier)
        self.io_properties = self._given

    def load(self) -> TableState:
        return self._state(self._ask("GET", self._url("load_table"), params={"snapshots": "all"}))

    def check_can_encrypt(self) -> None:
        """Refuse a server that drops entries of encryption-keys.

        A table of format version 3 without entries temporarily gets one. :meth:`commit` checks whether the server keeps
        the ``key-id`` of the first encrypted snapshot.
        """
        try:
            state = self.load()
        except FileNotFoundError:
            # A table that is yet to be created.
            return
        if state.document.fields.get("format-version", 0) >= 3 and not state.document.entries():
            self._try_keys(state)

    def commit(self, base: TableState, fields: Mapping[str, Any]) -> TableState:
        before = base.document.fields
        updates = updates_of(before, fields)
        found = self.load()
        if found.metadata_location != base.metadata_location:
            raise self._conflict(base.metadata_location, found.metadata_location)
        requirements = requirements_of(before, fields)
        if not any(each["snapshot"].get("key-id") for each in updates.snapshots):
            if any(each["action"] == "remove-encryption-key" for each in updates.first):
                # A server that removes the old entry and loses the new one would make the table unreadable.
                found = self._try_keys(found)
            after = self._send(found, requirements, updates.all)
            self._check_keys(after, fields)
            return self._committed(after)
        added = Updates(
            [each for each in updates.first if each["action"] == "add-encryption-key"], updates.snapshots, []
        )
        is_added = False
        try:
            if updates.first:
                found = self._send(found, requirements[:1], updates.first)
            found = self._send(found, _requirements_now(requirements, found), updates.snapshots)
            is_added = True
            # Load again, because the reply may differ from the stored state.
            self._check_snapshots(self.load(), fields, added)
            return self._committed(self._send(found, _requirements_now(requirements, found), updates.last))
        except (ConflictError, UnsupportedError, RefusedError) as error:
            if not self._take_back(before, added) and is_added:
                # Their data files are gone too, so another attempt would name what is not there.
                raise RefusedError(
                    f"{self.name}: others have expired the new snapshot before a branch had it, with its files. "
                    "Nothing was committed: write it again"
                ) from error
            raise

    def create(self, fields: Mapping[str, Any]) -> TableState:
        """Create the table on the server, and commit its snapshots, if any."""
        fields = {name: value for name, value in fields.items() if value is not None}
        bare = {**fields, "snapshots": [], "refs": {}, "encryption-keys": []}
        bare.pop("current-snapshot-id", None)
        staged = {
            "name": self.identifier[-1],
            "location": fields["location"],
            "schema": _current(fields, "schemas", "schema-id", "current-schema-id"),
            "partition-spec": _current(fields, "partition-specs", "spec-id", "default-spec-id"),
            "write-order": _current(fields, "sort-orders", "order-id", "default-sort-order-id"),
            "stage-create": True,
            "properties": {**fields.get("properties", {}), "format-version": str(fields["format-version"])},
        }
        try:
            # The reply has the server's settings for storage and credentials.
            self._learn(self._ask("POST", self._url("create_table"), staged), fields["location"])
            updates: list[Update] = [{"action": "assign-uuid", "uuid": fields["table-uuid"]}]
            updates += updates_of({"table-uuid": fields["table-uuid"]}, bare).all
            made = self._state(
                self._ask("POST", self._url("update_table"), self._body([{"type": "assert-create"}], updates))
            )
        except ConflictError as error:
            raise self._taken() from error
        if not fields.get("snapshots"):
            return self._committed(made)
        try:
            return self.commit(
                made, {**made.document.fields, **{name: fields[name] for name in _CONTENT if name in fields}}
            )
        except (ConflictError, UnsupportedError, RefusedError):
            self._ask("DELETE", self._url("drop_table"), params={"purgeRequested": "false"})
            raise

    # -- the server --------------------------------------------------------------------------------------------

    def _url(self, endpoint: str) -> str:
        from pyiceberg.catalog.rest import Endpoints

        parts = self._catalog._split_identifier_for_path(self.identifier)
        return self._catalog.url(getattr(Endpoints, endpoint), prefixed=True, **parts)

    def _body(self, requirements: list[Update], updates: list[Update]) -> dict[str, Any]:
        identifier = {"namespace": list(self.identifier[:-1]), "name": self.identifier[-1]}
        return {"identifier": identifier, "requirements": requirements, "updates": updates}

    def _ask(self, method: str, url: str, body: Any = None, params: dict[str, str] | None = None) -> dict[str, Any]:
        """Send a request; return the JSON of the reply.

        Raises
        ------
        ConflictError, FileNotFoundError, PermissionError, RefusedError
            The server refused.
        OSError
            Any other failure: no reply, or a reply that leaves the result unknown.
        """
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body)
        reply = self._catalog._session.request(method, url, data=data, params=params, headers=headers)
        code = reply.status_code
        if code < 300:
            found: dict[str, Any] = json.loads(reply.text) if reply.text else {}
            return found
        said = f"{self.name}: the catalog's server said {code}: {_message(reply.text)}"
        if code == 404 and method == "GET":
            raise FileNotFoundError(2, "the catalog has no such table", self.name)
        if code == 409:
            raise ConflictError(f"{said}. Nothing was committed: load the table and do it again")
        if code in (401, 403):
            raise PermissionError(13, said)
        if code == 501 or code in _REFUSED:
            raise RefusedError(said)
        raise OSError(said)

    def _state(self, found: Mapping[str, Any]) -> TableState:
        location = str(found.get("metadata-location") or "")
        metadata = found.get("metadata") or {}
        self._learn(found, str(metadata.get("location", "")))
        text = json.dumps(metadata, ensure_ascii=False, separators=(",", ":"))
        document = metadata_document(location or self.name, text.encode("utf-8"))
        # The catalog's server writes the metadata, so all of it is what the catalog says.
        properties = properties_of(document.fields)
        places = (document.fields.get("location"), *(properties.get(each) for each in (DATA_PATH, METADATA_PATH)))
        return TableState(
            location, document, locations=tuple(each for each in places if isinstance(each, str) and each)
        )

    def _learn(self, found: Mapping[str, Any], location: str) -> None:
        """Take the server's settings for access to the table's files."""
        config = dict(found.get("config") or {})
        self._token = config.get("token", self._token)
        credentials = [
            each for each in found.get("storage-credentials") or () if location.startswith(each.get("prefix", ""))
        ]
        best: Mapping[str, Any] = max(credentials, key=lambda each: len(each.get("prefix", "")), default={})
        if config or best:
            self.io_properties = {**self._given, **config, **best.get("config", {})}

    def _send(self, found: TableState, requirements: list[Update], updates: list[Update]) -> TableState:
        """Send updates; return the resulting table."""
        try:
            return self._state(self._ask("POST", self._url("update_table"), self._body(requirements, updates)))
        except (ConflictError, PermissionError):
            raise
        except RefusedError as error:
            now = self.load()
            if now.metadata_location != found.metadata_location:
                # Such as a sequence number that another writer has taken.
                raise self._conflict(found.metadata_location, now.metadata_location) from error
            raise
        except OSError as error:
            try:
                now = self.load()
                if _is_done(now.document.fields, updates):
                    return now
                then = "the table does not have its changes"
            except OSError as second:
                then = f"could not be asked then ({second})"
            raise OSError(
                f"{self.name}: it is not known whether the commit is made: the server failed ({error}), and {then}. "
                "Load the table later, and look, before doing it again"
            ) from error

    def _try_keys(self, state: TableState) -> TableState:
        """Test, with an unused entry, whether the server keeps entries of encryption-keys."""
        uuid = [{"type": "assert-table-uuid", "uuid": state.document.fields["table-uuid"]}]
        entry = {"key-id": f"ags1-{secrets.token_hex(16)}", "encrypted-key-metadata": "AAAA", "encrypted-by-id": "none"}
        self._send(state, uuid, [{"action": "add-encryption-key", "encryption-key": entry}])
        now = self.load()
        if entry["key-id"] not in keyed(now.document.fields, "encryption-keys", "key-id"):
            raise self._loses_keys()
        return self._send(now, uuid, [{"action": "remove-encryption-key", "key-id": entry["key-id"]}])

    def _loses_keys(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name}: this REST server loses entries of encryption-keys, so that it cannot have encrypted "
            "tables: use a server that keeps them (Apache Polaris does), or a Hive catalog"
        )

    def _check_snapshots(self, now: TableState, fields: Mapping[str, Any], added: Updates) -> None:
        has = keyed(now.document.fields, "snapshots", "snapshot-id")
        for each in added.snapshots:
            wanted = each["snapshot"]
            found = has.get(wanted["snapshot-id"], {})
            lost = [name for name in _NEEDED if found.get(name) != wanted.get(name)]
            if lost:
                raise UnsupportedError(
                    f"{self.name}: this REST server loses {', '.join(lost)} of snapshots, so that it cannot have "
                    "encrypted tables: use a server that keeps them (Apache Polaris does), or a Hive catalog. The "
                    "snapshots were removed again, and the table is as it was"
                )
        self._check_keys(now, fields)

    def _check_keys(self, now: TableState, fields: Mapping[str, Any]) -> None:
        has = keyed(now.document.fields, "encryption-keys", "key-id")
        if any(has.get(key_id) != entry for key_id, entry in keyed(fields, "encryption-keys", "key-id").items()):
            raise self._loses_keys()

    def _take_back(self, before: Mapping[str, Any], added: Updates) -> bool:
        """Remove snapshots and keys that were added and that no ref has; return whether the snapshots were there."""
        is_there = True
        try:
            now = self.load().document.fields
            wanted = {each["snapshot"]["snapshot-id"] for each in added.snapshots}
            is_there = wanted <= keyed(now, "snapshots", "snapshot-id").keys()
            named = {each.get("snapshot-id") for each in refs_of(now).values()}
            snapshots = sorted((wanted - named) & keyed(now, "snapshots", "snapshot-id").keys())
            updates: list[Update] = []
            if snapshots:
                updates.append({"action": "remove-snapshots", "snapshot-ids": snapshots})
            known = keyed(before, "encryption-keys", "key-id")
            has = keyed(now, "encryption-keys", "key-id")
            used = {each.get("key-id") for each in now.get("snapshots") or () if each["snapshot-id"] not in wanted}
            used |= {each.get("encrypted-by-id") for key_id, each in has.items() if key_id in used}
            for each in added.first:
                key_id = each["encryption-key"]["key-id"]
                if key_id in has and key_id not in known and key_id not in used:
                    updates.append({"action": "remove-encryption-key", "key-id": key_id})
            if updates:
                uuid = [{"type": "assert-table-uuid", "uuid": before["table-uuid"]}]
                self._ask("POST", self._url("update_table"), self._body(uuid, updates))
        except (ConflictError, OSError):
            # They are harmless if they stay: no ref has them, and expiring snapshots removes them.
            pass
        return is_there


_CONTENT = ("snapshots", "refs", "encryption-keys", "current-snapshot-id", "snapshot-log")


def _requirements_now(requirements: list[Update], now: TableState) -> list[Update]:
    """Return the requirements, with the schema and similar values that an earlier step of this commit has set."""
    fields = now.document.fields
    names = {
        "assert-current-schema-id": "current-schema-id",
        "assert-default-spec-id": "default-spec-id",
        "assert-default-sort-order-id": "default-sort-order-id",
    }
    return [
        {**each, names[each["type"]]: fields.get(names[each["type"]])} if each["type"] in names else each
        for each in requirements
    ]


def _is_done(fields: Mapping[str, Any], updates: list[Update]) -> bool:
    """Return whether the table already has the result of the updates."""
    snapshots = keyed(fields, "snapshots", "snapshot-id")
    keys = keyed(fields, "encryption-keys", "key-id")
    refs, properties = refs_of(fields), fields.get("properties") or {}
    added = {each["encryption-key"]["key-id"] for each in updates if each["action"] == "add-encryption-key"}

    def done(update: Update) -> bool:
        action = update["action"]
        if action == "add-encryption-key":
            return bool(keys.get(update["encryption-key"]["key-id"]) == update["encryption-key"])
        if action == "remove-encryption-key":
            return update["key-id"] in added or update["key-id"] not in keys
        if action == "add-snapshot":
            return update["snapshot"]["snapshot-id"] in snapshots
        if action == "remove-snapshots":
            return not snapshots.keys() & set(update["snapshot-ids"])
        if action == "set-snapshot-ref":
            return bool(refs.get(update["ref-name"], {}).get("snapshot-id") == update["snapshot-id"])
        if action == "remove-snapshot-ref":
            return update["ref-name"] not in refs
        if action == "set-properties":
            return all(properties.get(name) == value for name, value in update["updates"].items())
        if action == "remove-properties":
            return not properties.keys() & set(update["removals"])
        if action == "upgrade-format-version":
            return bool(fields.get("format-version") == update["format-version"])
        return True

    return all(map(done, updates))


def _current(fields: Mapping[str, Any], name: str, key: str, wanted: str) -> Any:
    return next(each for each in fields[name] if each[key] == fields[wanted])


def _message(text: str) -> str:
    try:
        found = json.loads(text)["error"]
        return f"{found.get('type', '')}: {found.get('message', '')}".split("\n")[0][:500]
    except (ValueError, KeyError, TypeError, AttributeError):
        return text[:200]
