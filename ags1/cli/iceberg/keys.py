"""``ags1 iceberg rewrap`` and ``prune``: other keys in the metadata, committed, or for a catalog to be told of."""

from __future__ import annotations

import contextlib
from argparse import Namespace

from ags1.cli.iceberg.opening import CONVERSION, Opened, opened, table_command
from ags1.cli.kms.clients import new_client_of
from ags1.cli.output import say, say_json, warn, warn_some
from ags1.cli.report import Reporter
from ags1.errors import FormatError
from ags1.iceberg.metadata.metadata_document import KEY_ID, properties_of
from ags1.support.exit_codes import UsageError
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.iceberg import EncryptionKeys, KeyRewrapReport, PruneReport
    from ags1.iceberg.catalogs import TableState

_FIELDS = "old_metadata, new_metadata and new_metadata_hash (null if nothing was written)"
_NEW_METADATA = """
the new metadata:
  The old one, except for encryption-keys{},
  last-updated-ms (now), and metadata-log (the old file is added, and the
  oldest dropped beyond write.metadata.previous-versions-max). No other file
  changes, and none is deleted.
  With --catalog the change is committed, unless another writer has committed
  meanwhile. Without, the new file stands beside the old one under the next
  number, and the table changes when its catalog is told: this command says
  how. Stop writers until then: what they commit meanwhile is not in it. A
  table without a catalog is its newest file: then that is the commit.
"""
_QUIET = {"quiet": "say nothing but the new location, and errors"}


@table_command(
    CONVERSION,
    new_key_id="new-key-id!",
    new_kms="new-kms",
    said="dry-run yes SAY",
    fields=f"{_FIELDS}, old_key_ids, new_key_id, keys, unopened, untouched, dry_run, error",
    epilog=_NEW_METADATA.format(", encryption.key-id"),
    changed=_QUIET,
    subject="old_metadata",
)
def rewrap(where: Namespace, new_key_id: str, new_kms: str | None, said: Namespace) -> int:
    r"""Key encryption keys are re-wrapped, and the table's property encryption.key-id names the new master key. Keep
    the old one as long as somebody needs older metadata files. In Python this is rekey_table(key_id=...); `ags1 iceberg
    rekey` gives every file a new key.

    examples:
      ags1 iceberg rewrap db.events --catalog prod \
          --kms 'aws:?region=eu-central-1' --new-key-id alias/lake-2027 --dry-run
    """
    with opened(where, said) as table, contextlib.ExitStack() as stack:
        change = _Change(table, where, said)
        table.require_kms()
        client = stack.enter_context(new_client_of(where, new_kms)) if new_kms else None
        stack.enter_context(Reporter(said, ("re-wrapping", "re-wrapped")))
        # The calls and checks of a dry run are the same; what is thrown away is the result.
        changed = change.keys.rewrap(table.kms, new_key_id, client)
        report: Any = changed.report
        change.fields["properties"] = {**(change.fields.get("properties") or {}), KEY_ID: new_key_id}
        change.commit(changed)
    _tell_of_rewrap(change, report, new_kms)
    return 0


@table_command(
    "catalog PINNED allow-location property",
    keep="keep-key",
    said="dry-run SAY",
    fields=f"{_FIELDS}, dropped, kept, unjudged, missing, dry_run, error",
    epilog=_NEW_METADATA.format(""),
    changed=_QUIET,
    subject="old_metadata",
)
def prune(where: Namespace, keep: list[str], said: Namespace) -> int:
    """Needs no KMS. Entries that this version cannot judge stay.

    examples:
      ags1 iceberg prune db.events --catalog prod --dry-run
    """
    with opened(where, said) as table, Reporter(said, ("reading", "read")):
        change = _Change(table, where, said)
        for key_id in keep:
            if key_id not in change.keys:
                raise UsageError(f"--keep {key_id}: the table has no such key")
        changed = change.keys.prune(change.base.document.fields, keep=keep)
        report: Any = changed.report
        if report.dropped:
            change.commit(changed)
    _tell_of_prune(change, report)
    return 0


class _Change:
    """Other metadata for a table.

    `base` is what is changed, `old` where that is, as the metadata itself spells its locations; `fields` are the
    metadata to be, `keys` those of the table as it is. `made` is what was committed, `is_wanted` whether there is a
    change.
    """

    def __init__(self, table: Opened, where: Namespace, said: Namespace) -> None:
        from ags1.iceberg import EncryptionKeys
        from ags1.iceberg.catalogs.file import as_the_table_spells_it

        self._target, self.where, self.said = table.target, where, said
        self.base: TableState = table.target.load()
        location = self.base.metadata_location
        if location != table.location and not said.quiet:
            warn(f"ags1: note: {location} was made from {table.location}, and is what is changed")
        self.old = as_the_table_spells_it(location, self.base.document.fields)
        self.fields = dict(self.base.document.fields)
        self.keys = EncryptionKeys(self.base.document.entries())
        self.made: TableState | None = None
        self.is_wanted = False
        if not self.base.document.entries() and not properties_of(self.fields).get(KEY_ID):
            raise FormatError(
                f"{location}: the table is not encrypted: it has neither the property {KEY_ID} nor encryption-keys; "
                "`ags1 iceberg encrypt` encrypts it"
            )

    def commit(self, keys: EncryptionKeys) -> None:
        """Put in other keys, and commit, unless this is a dry run. It is refused if a snapshot would lose its key."""
        fields = keys.to_table_metadata(self.fields)
        self.is_wanted = True
        if not self.said.dry_run:
            self.made = self._target.commit(self.base, fields)


# -- what is said --------------------------------------------------------------------------------------------------


def _tell_of_rewrap(change: _Change, report: KeyRewrapReport, new_kms: str | None) -> None:
    new, said = report.new_table_key_id, change.said
    fields = {
        "old_key_ids": report.old_table_key_ids,
        "new_key_id": new,
        "keys": report.rewrapped,
        "unopened": report.unopened,
        "untouched": report.untouched,
    }
    # The same id at another service is another key.
    left = [each for each in report.old_table_key_ids if each != new or new_kms]
    would = "would be" if said.dry_run else "is" if len(report.rewrapped) == 1 else "are"
    what = f"{counted(len(report.rewrapped), 'key encryption key')} {would}"
    lines = [f"{what} wrapped again under the master key {new!r}"]
    if left:
        from ags1.iceberg.conversion.operations import REWRAPPED

        lines = [f"{what} under the master key {new!r}, no more under {', '.join(map(repr, left))}", REWRAPPED]
    warnings = {
        "does not open, neither before nor now": report.unopened,
        "is under no key encryption key, and stays as it is": report.untouched,
    }
    readers = f"Writers and readers need a KMS that unwraps with {new!r} from then on."
    _tell(change, fields, lines, warnings, readers)


def _tell_of_prune(change: _Change, report: PruneReport) -> None:
    fields = {name: getattr(report, name) for name in ("dropped", "kept", "unjudged", "missing")}
    lines = [f"{change.old}: all {len(report.kept):,} keys are in use; nothing was written"]
    if report.dropped:
        verb = "would be dropped" if change.said.dry_run else "dropped"
        count = f"{counted(len(report.dropped), 'key')} {verb}, {len(report.kept):,} kept"
        lines = [*(f"  {each}" for each in report.dropped), count]
    warnings = {
        "is named by a snapshot and missing: that snapshot cannot be opened": report.missing,
        "stays because it has what this version does not know": report.unjudged,
    }
    _tell(change, fields, lines, warnings)


def _tell(
    change: _Change, fields: dict[str, Any], lines: list[str], warnings: dict[str, tuple[str, ...]], readers: str = ""
) -> None:
    """Say what was changed, and what is to be done for it to count; `readers` is what those of the table need."""
    said, made = change.said, change.made
    if said.json:
        new, digest = (None, None) if made is None else (made.metadata_location, made.document.hash)
        record = {"old_metadata": change.old, "new_metadata": new, "new_metadata_hash": digest, **fields}
        say_json({**record, "dry_run": said.dry_run, "error": None})
        return
    for what, ids in warnings.items():
        warn_some([f"warning: key {each} {what}" for each in ids], "warning: and {:,} more (--json names them all)")
    if said.quiet:
        if made is not None:
            say(made.metadata_location)
        return
    for line in (*lines, *_what_to_do(change, readers)):
        say(line)


def _what_to_do(change: _Change, readers: str) -> list[str]:
    from ags1.iceberg.catalogs.file import has_no_catalog

    catalog, old = change.where.catalog, change.old
    if change.made is None:
        if not change.is_wanted:
            return []
        return [f"{'would be committed' if catalog else _would_write(change)}; nothing was written"]
    new = change.made.metadata_location
    if catalog:
        done = [f"committed {new or change.where.table} to {catalog}"]
    elif has_no_catalog(old, change.base.document.fields):
        done = [f"wrote {new}", "The table has no catalog, and is changed."]
    else:
        sql = new.replace("'", "''")
        done = [
            f"wrote {new}",
            f"The table changes when its catalog is told, which still has {old}",
            "Stop its writers, take the table out of the catalog without deleting its files, and register the new file",
            "(with --catalog NAME, and the table's name there, this command commits by itself):",
            f"  PyIceberg  catalog.drop_table(NAME); catalog.register_table(NAME, {new!r})",
            "  Spark      DROP TABLE NAME  (never with PURGE)",
            f"             CALL CATALOG.system.register_table(table => 'NAME', metadata_file => '{sql}')",
        ]
    return [*done, readers] if readers else done


def _would_write(change: _Change) -> str:
    from ags1.iceberg.catalogs.file import next_name
    from ags1.iceberg.metadata.metadata_document import version_of

    return f"would write metadata file {version_of(next_name(change.old))} beside {change.old}"
