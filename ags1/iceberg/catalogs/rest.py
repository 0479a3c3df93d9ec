"""REST catalogs: the server writes the metadata, so the client checks that the server loses no keys.

A server that drops a snapshot's ``key-id`` would leave a snapshot that can never be read. A commit is one request, but
for that of the first encrypted snapshots of a table:

    1  version, schemas, entries of new key ids       nothing that readers use
    2  the snapshots, without a ref                   not used by readers yet
       load: are key-id and encryption-keys there?    no: the snapshots and keys are removed, and the commit refused
    3  refs, properties, what is removed or replaced  the commit

What a killed one has added stays until the snapshots without a ref are expired.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog.rest import RestCatalog

from ags1.errors import ConflictError, UnsupportedError, without_secrets
from ags1.iceberg.catalogs._table import CatalogTable, RefusedError, TableState
from ags1.iceberg.catalogs._updates import Update, Updates, keyed, refs_of, requirements_of, updates_of
from ags1.iceberg.metadata.metadata_document import KEY_ID, current_of, locations_of, metadata_document, properties_of
from ags1.support.arguments import spelled

# Fields that a reader of an encrypted snapshot needs.
_NEEDED = ("key-id", "manifest-list", "first-row-id", "added-rows", "sequence-number")


class RestTable(CatalogTable):
    """A table of a REST catalog, which writes the metadata files itself."""

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
        """Do nothing: :meth:`commit` finds out whether the server keeps what the first encrypted snapshot needs."""

    def commit(self, base: TableState, fields: Mapping[str, Any]) -> TableState:
        """Send what differs as updates, with what must not have changed as requirements."""
        before = base.document.fields
        updates = updates_of(before, fields)
        found = self._load()
        if found.metadata_location != base.metadata_location:
            raise self._conflict(base.metadata_location, found.metadata_location)
        requirements = requirements_of(before, fields)
        if any(each["action"] == "add-encryption-key" for each in updates.last):
            # A server that removes the old entry and loses the new one would make the table unreadable.
            found = self._try_keys(found)
        is_encrypted = any(each["snapshot"].get("key-id") for each in updates.snapshots)
        if is_encrypted and not any(each.get("key-id") for each in found.document.fields.get("snapshots") or ()):
            after, lost = self._commit_first(found, requirements, updates), ""
        else:
            after = self._send(found, requirements, updates.all)
            lost = self._lost(self._load() if is_encrypted else after, updates)
        error = self._loses(lost) if lost else None
        if properties_of(after.document.fields).get(KEY_ID) != properties_of(fields).get(KEY_ID):
            error = self._pins("the server keeps the old value")
        if error is not None:
            # What was written must stay: the table names it.
            raise OSError(f"{error}. This commit is made nevertheless: go back to the snapshot before it")
        return self._committed(after, fields)

    def _commit_first(self, found: TableState, requirements: list[Update], updates: Updates) -> TableState:
        """Commit encrypted snapshots of which no ref is, until the server has shown that it keeps what they need."""
        is_added = False
        try:
            if updates.first:
                found = self._send(found, requirements[:1], updates.first)
            found = self._send(found, _requirements_now(requirements, found), updates.snapshots)
            is_added = True
            # Load again, because the reply may differ from the stored state.
            if lost := self._lost(self._load(), updates):
                raise UnsupportedError(
                    f"{self._loses(lost)}. The snapshots were removed again, and the table is as it was"
                )
            return self._send(found, _requirements_now(requirements, found), updates.last)
        except (ConflictError, UnsupportedError, RefusedError) as error:
            try:
                is_there = self._take_back(updates)
            except (ConflictError, OSError) as fault:
                # Keys alone are harmless. The files of a snapshot stay with it.
                if is_added:
                    raise OSError(
                        f"{self.name}: nothing was committed ({error}), and the new snapshot could not be taken back "
                        f"({fault}): {spelled('expire_snapshots')} removes it with its files. Write it again"
                    ) from error
                raise error from None
            if is_added and not is_there:
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
            if any(KEY_ID in (*each.get("updates", ()), *each.get("removals", ())) for each in updates):
                raise UnsupportedError(self._pins(str(error))) from error
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
            raise UnsupportedError(self._loses("entries of encryption-keys"))
        return now

    def _pins(self, said: str) -> str:
        return (
            f"{self.name}: the table's property {KEY_ID} could not be changed ({said}). If the catalog pins this "
            "property, copy the table into a new one, which has its master key from the beginning: "
            "`relocate_table(table, NEW_LOCATION, catalog, NEW_NAME, key_id=...)`, or `ags1 iceberg relocate`"
        )

    def _loses(self, lost: str) -> str:
        return (
            f"{self.name}: this REST server loses {lost}, so that it cannot have encrypted tables: use a server that "
            "keeps them (Apache Polaris does), or a Hive catalog"
        )

    def _lost(self, now: TableState, added: Updates) -> str:
        """What the server has lost of the snapshots and keys that were added; empty if nothing is known to be lost."""
        has = keyed(now.document.fields, "snapshots", "snapshot-id")
        for each in added.snapshots:
            wanted = each["snapshot"]
            if (found := has.get(wanted["snapshot-id"])) is None:
                # Others have expired it meanwhile, with its keys.
                return ""
            if lost := [name for name in _NEEDED if found.get(name) != wanted.get(name)]:
                return f"{', '.join(lost)} of snapshots"
        keys = keyed(now.document.fields, "encryption-keys", "key-id")
        entries = (each["encryption-key"] for each in added.all if each["action"] == "add-encryption-key")
        return "entries of encryption-keys" if any(keys.get(each["key-id"]) != each for each in entries) else ""

    def _take_back(self, added: Updates) -> bool:
        """Remove snapshots and keys that were added and that no ref has; return False if others removed the files."""
        snapshots, now = {each["snapshot"]["snapshot-id"] for each in added.snapshots}, self._load().document.fields
        has, keys = keyed(now, "snapshots", "snapshot-id"), keyed(now, "encryption-keys", "key-id")
        unnamed = sorted(snapshots & has.keys() - {each.get("snapshot-id") for each in refs_of(now).values()})
        used = {each.get("key-id") for number, each in has.items() if number not in unnamed}
        used |= {each.get("encrypted-by-id") for key_id, each in keys.items() if key_id in used}
        updates: list[Update] = [{"action": "remove-snapshots", "snapshot-ids": unnamed}] if unnamed else []
        for each in added.first:
            key_id = each.get("encryption-key", {}).get("key-id")
            if key_id in keys and key_id not in used:
                updates.append({"action": "remove-encryption-key", "key-id": key_id})
        if updates:
            self._update(requirements_of(now, now)[:1], updates)
        return snapshots <= has.keys()


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
