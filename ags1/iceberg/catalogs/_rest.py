"""REST catalogs: the server writes the metadata, so the client first checks that the server loses no keys.

    1  version, schemas, entries of new key ids       nothing that readers use; a property lists what 1 and 2 add
    2  the snapshots, without a ref                   not used by readers yet
       load: are key-id and encryption-keys there?    no: the snapshots and keys are removed, and the commit refused
    3  refs, properties, what is removed or replaced  the commit

A server that drops a snapshot's ``key-id`` would leave a snapshot that can never be read. In this order the table never
has such a snapshot. A commit without encrypted snapshots is one request. What a killed commit has added is removed by
the next commit that moves the main branch: from then on, the server refuses the third request of the killed one.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog.rest import RestCatalog

from ags1.errors import ConflictError, UnsupportedError, without_secrets
from ags1.iceberg.catalogs._table import CatalogTable, RefusedError, TableState
from ags1.iceberg.catalogs._updates import Update, Updates, keyed, refs_of, requirements_of, updates_of
from ags1.iceberg.metadata.metadata_document import KEY_ID, current_of, locations_of, metadata_document, properties_of

# Fields that a reader of an encrypted snapshot needs.
_NEEDED = ("key-id", "manifest-list", "first-row-id", "added-rows", "sequence-number")
# Properties of commits under way: the main branch that they need, and what they add.
_PENDING = "pending-commit.ags1."


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

    def _load(self) -> TableState:
        return self._state(self._ask("GET", self._url("load_table"), params={"snapshots": "all"}))

    def check_can_encrypt(self) -> None:
        """Refuse a server that drops entries of encryption-keys.

        A table of format version 3 without entries temporarily gets one. :meth:`commit` checks whether the server keeps
        the ``key-id`` of the first encrypted snapshot.
        """
        try:
            state = self._load()
        except FileNotFoundError:
            # A table that is yet to be created.
            return
        if state.document.fields.get("format-version", 0) >= 3 and not state.document.entries():
            self._try_keys(state)

    def check_key_id(self, before: Mapping[str, Any], fields: Mapping[str, Any], *, is_brief: bool) -> None:
        """Refuse a server that pins ``encryption.key-id``; see :meth:`CatalogTable.check_key_id`."""
        old, new = properties_of(before).get(KEY_ID), properties_of(fields).get(KEY_ID)
        if old == new:
            return
        state = self._load()
        if is_brief:
            self._change_key_id(state, [_key_id_update(new), _key_id_update(old)])
            return
        version = {name: fields[name] for name in ("format-version", "next-row-id") if name in fields}
        there, back = updates_of(before, fields), updates_of(fields, {**before, **version})
        if _replaces(there):
            state = self._try_keys(state)
        now = self._change_key_id(state, there.all)
        if now is None:
            return
        with contextlib.suppress(ConflictError, RefusedError):
            # Where this is refused, the table has the master key of its next commit already, which its keys are under.
            self._send(now, requirements_of(before, before)[:1], back.all)
        if properties_of(now.document.fields).get(KEY_ID) != new:
            raise self._pins("it keeps the old value, and says nothing")

    def commit(self, base: TableState, fields: Mapping[str, Any]) -> TableState:
        before = base.document.fields
        updates = updates_of(before, fields)
        found = self._load()
        if found.metadata_location != base.metadata_location:
            raise self._conflict(base.metadata_location, found.metadata_location)
        requirements = requirements_of(before, fields)
        if _replaces(updates):
            # A server that removes the old entry and loses the new one would make the table unreadable.
            found = self._try_keys(found)
        if not any(each["snapshot"].get("key-id") for each in updates.snapshots):
            after = self._send(found, requirements, updates.all)
            self._check_keys(after, keyed(fields, "encryption-keys", "key-id"))
            return self._committed(after, fields)
        added = _Added.of(before, updates)
        is_added = False
        try:
            first = [*updates.first, {"action": "set-properties", "updates": {added.name: added.text}}]
            found = self._send(found, requirements[:1], first)
            found = self._send(found, _requirements_now(requirements, found), updates.snapshots)
            is_added = True
            # Load again, because the reply may differ from the stored state.
            self._check_snapshots(self._load(), updates)
            last = [*updates.last, *_removals(fields, [added.name], set(), set()), *_leftovers(fields)]
            return self._committed(self._send(found, _requirements_now(requirements, found), last), fields)
        except (ConflictError, UnsupportedError, RefusedError) as error:
            if not self._take_back(before["table-uuid"], added) and is_added:
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
            "schema": current_of(fields, "schemas"),
            "partition-spec": current_of(fields, "partition-specs"),
            "write-order": current_of(fields, "sort-orders"),
            "stage-create": True,
            "properties": {**fields.get("properties", {}), "format-version": str(fields["format-version"])},
        }
        try:
            # The reply has the server's settings for storage and credentials.
            self._learn(self._ask("POST", self._url("create_table"), staged), fields["location"])
            updates: list[Update] = [{"action": "assign-uuid", "uuid": fields["table-uuid"]}]
            updates += updates_of({"table-uuid": fields["table-uuid"]}, bare).all
            made = self._state(self._update([{"type": "assert-create"}], updates))
        except ConflictError as error:
            raise self._taken() from error
        if not fields.get("snapshots"):
            return self._committed(made, fields)
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

    def _update(self, requirements: list[Update], updates: list[Update]) -> dict[str, Any]:
        identifier = {"namespace": list(self.identifier[:-1]), "name": self.identifier[-1]}
        body = {"identifier": identifier, "requirements": requirements, "updates": updates}
        return self._ask("POST", self._url("update_table"), body)

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
        told = _message(reply.text)
        for secret in (self._token, *map(self._catalog.properties.get, ("token", "credential"))):
            told = told.replace(secret, "<redacted>") if secret else told
        said = without_secrets(f"{self.name}: the catalog's server said {code}: {told}")
        if code == 404 and method == "GET":
            raise FileNotFoundError(2, "the catalog has no such table", self.name)
        if code == 409:
            raise ConflictError(f"{said}. Nothing was committed: load the table and do it again")
        if code in (401, 403):
            raise PermissionError(13, said)
        if 400 <= code < 500 or code == 501:
            raise RefusedError(said)
        raise OSError(said)

    def _state(self, found: Mapping[str, Any]) -> TableState:
        location = str(found.get("metadata-location") or "")
        metadata = found.get("metadata") or {}
        self._learn(found, str(metadata.get("location", "")))
        text = json.dumps(metadata, ensure_ascii=False, separators=(",", ":"))
        document = metadata_document(location or self.name, text.encode("utf-8"))
        # The catalog's server writes the metadata, so all of it is what the catalog says.
        places = locations_of(document.fields.get("location"), properties_of(document.fields))
        return TableState(location, document, locations=places)

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
            return self._state(self._update(requirements, updates))
        except (ConflictError, PermissionError):
            raise
        except RefusedError as error:
            now = self._load()
            if now.metadata_location != found.metadata_location:
                # Such as a sequence number that another writer has taken.
                raise self._conflict(found.metadata_location, now.metadata_location) from error
            raise
        except OSError as error:
            try:
                now = self._load()
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
        """Test, with an unused entry, whether the server keeps entries of encryption-keys, also a replaced one."""
        uuid = [{"type": "assert-table-uuid", "uuid": state.document.fields["table-uuid"]}]
        entry = {"key-id": f"ags1-{secrets.token_hex(16)}", "encrypted-key-metadata": "AAAA", "encrypted-by-id": "none"}
        remove = {"action": "remove-encryption-key", "key-id": entry["key-id"]}
        self._send(state, uuid, [{"action": "add-encryption-key", "encryption-key": entry}])
        now = self._load()
        is_kept = entry["key-id"] in keyed(now.document.fields, "encryption-keys", "key-id")
        if is_kept:
            other = {**entry, "encrypted-by-id": "other"}
            self._send(now, uuid, [remove, {"action": "add-encryption-key", "encryption-key": other}])
            now = self._load()
            is_kept = keyed(now.document.fields, "encryption-keys", "key-id").get(entry["key-id"]) == other
            now = self._send(now, uuid, [remove])
        if not is_kept:
            raise self._loses_keys()
        return now

    def _change_key_id(self, state: TableState, updates: list[Update]) -> TableState | None:
        """Send updates of ``encryption.key-id``; return None if another writer was faster."""
        fields = state.document.fields
        try:
            return self._send(state, requirements_of(fields, fields)[:1], updates)
        except (ConflictError, RefusedError) as error:
            if self._load().metadata_location != state.metadata_location:
                # The commit itself will show what the server allows.
                return None
            raise self._pins(str(error)) from error

    def _pins(self, said: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name}: this catalog does not let the table's property {KEY_ID} be changed ({said}). Copy the table "
            "into a new one, which has its master key from the beginning: `relocate_table(table, NEW_LOCATION, "
            "catalog, NEW_NAME, key_id=...)`, or `ags1 iceberg relocate`"
        )

    def _loses_keys(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name}: this REST server loses entries of encryption-keys, so that it cannot have encrypted "
            "tables: use a server that keeps them (Apache Polaris does), or a Hive catalog"
        )

    def _check_snapshots(self, now: TableState, added: Updates) -> None:
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
        keys = (each["encryption-key"] for each in added.first if each["action"] == "add-encryption-key")
        self._check_keys(now, {each["key-id"]: each for each in keys})

    def _check_keys(self, now: TableState, wanted: Mapping[str, Any]) -> None:
        has = keyed(now.document.fields, "encryption-keys", "key-id")
        if any(has.get(key_id) != entry for key_id, entry in wanted.items()):
            raise self._loses_keys()

    def _take_back(self, uuid: str, added: _Added) -> bool:
        """Remove snapshots and keys that were added and that no ref has; return False if others removed the files."""
        is_there = True
        try:
            now = self._load().document.fields
            # The next commit removes a snapshot together with the property, and keeps the files. An expiry does not.
            is_there = added.snapshots <= keyed(now, "snapshots", "snapshot-id").keys() or (
                added.name not in properties_of(now)
            )
            names = [added.name] if added.name in properties_of(now) else []
            updates = _removals(now, names, added.snapshots, added.keys)
            if updates:
                self._update([{"type": "assert-table-uuid", "uuid": uuid}], updates)
        except (ConflictError, OSError):
            # They are harmless if they stay: no ref has them, and the next commit removes them.
            pass
        return is_there


@dataclass(frozen=True)
class _Added:
    """What the first two requests of a commit add, and the property that says so."""

    name: str
    text: str
    snapshots: frozenset[int]
    keys: frozenset[str]

    @classmethod
    def of(cls, before: Mapping[str, Any], updates: Updates) -> _Added:
        snapshots = [each["snapshot"]["snapshot-id"] for each in updates.snapshots]
        keys = [each["encryption-key"]["key-id"] for each in updates.first if "encryption-key" in each]
        text = json.dumps({"main": _main_of(before), "snapshots": snapshots, "keys": keys})
        return cls(_PENDING + secrets.token_hex(8), text, frozenset(snapshots), frozenset(keys))

    @classmethod
    def found(cls, fields: Mapping[str, Any]) -> Iterator[_Added]:
        """Yield those of the table's properties that can no longer be committed."""
        for name, text in properties_of(fields).items():
            if name.startswith(_PENDING):
                try:
                    found = json.loads(text)
                    snapshots, keys = frozenset(found["snapshots"]), frozenset(found["keys"])
                    is_over = found["main"] != _main_of(fields)
                except (ValueError, KeyError, TypeError):
                    continue
                if is_over:
                    yield cls(name, text, snapshots, keys)


def _main_of(fields: Mapping[str, Any]) -> Any:
    return refs_of(fields).get("main", {}).get("snapshot-id")


def _leftovers(fields: Mapping[str, Any]) -> list[Update]:
    """Return updates that remove what other commits have added, which the new main branch refuses."""
    found = list(_Added.found(fields))
    snapshots = set[int]().union(*(each.snapshots for each in found))
    keys = set[str]().union(*(each.keys for each in found))
    return _removals(fields, [each.name for each in found], snapshots, keys)


def _removals(
    fields: Mapping[str, Any], properties: list[str], snapshots: Collection[int], keys: Collection[str]
) -> list[Update]:
    """Return updates that remove these properties, and the snapshots and keys that nothing else in the table uses."""
    named = {each.get("snapshot-id") for each in refs_of(fields).values()}
    parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in fields.get("snapshots") or ()}
    kept = {parents[each] for each in parents if each in named or each not in snapshots}
    unnamed = sorted((set(snapshots) - named - kept) & parents.keys())
    has = keyed(fields, "encryption-keys", "key-id")
    used = {each.get("key-id") for each in fields.get("snapshots") or () if each["snapshot-id"] not in unnamed}
    used |= {each.get("encrypted-by-id") for key_id, each in has.items() if key_id in used}
    updates: list[Update] = [{"action": "remove-snapshots", "snapshot-ids": unnamed}] if unnamed else []
    updates += [
        {"action": "remove-encryption-key", "key-id": each} for each in has if each in keys and each not in used
    ]
    if properties:
        updates.append({"action": "remove-properties", "removals": properties})
    return updates


def _replaces(updates: Updates) -> bool:
    return any(each["action"] == "add-encryption-key" for each in updates.last)


def _key_id_update(value: str | None) -> Update:
    if value is None:
        return {"action": "remove-properties", "removals": [KEY_ID]}
    return {"action": "set-properties", "updates": {KEY_ID: value}}


_CONTENT = ("snapshots", "refs", "encryption-keys", "current-snapshot-id", "snapshot-log")


def _requirements_now(requirements: list[Update], now: TableState) -> list[Update]:
    """Return the requirements, with the schema and similar values that an earlier step of this commit has set."""
    fields = now.document.fields
    names = [each["type"].removeprefix("assert-") for each in requirements]
    return [
        {**each, name: fields.get(name)} if name in each else each
        for name, each in zip(names, requirements, strict=True)
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


def _message(text: str) -> str:
    try:
        found = json.loads(text)["error"]
        return f"{found.get('type', '')}: {found.get('message', '')}".split("\n")[0][:500]
    except (ValueError, KeyError, TypeError, AttributeError):
        return text[:200]
