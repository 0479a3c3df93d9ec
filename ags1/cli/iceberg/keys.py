"""``ags1 iceberg rewrap`` and ``prune``: other keys in the metadata, committed, or for a catalog to be told of."""

from __future__ import annotations

import contextlib
from argparse import Namespace

from ags1.cli.iceberg.opening import CONVERSION, Opened, opened, table_command
from ags1.cli.kms import new_client_of
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
    metadata to be, `keys` those of the table as it is, `made` is what was committed.
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
        if not self.base.document.entries() and not properties_of(self.fields).get(KEY_ID):
            raise FormatError(
                f"{location}: the table is not encrypted: it has neither the property {KEY_ID} nor encryption-keys; "
                "`ags1 iceberg encrypt` encrypts it"
            )

    def commit(self, keys: EncryptionKeys) -> None:
        """Put in other keys, and commit, unless this is a dry run. It is refused if a snapshot would lose its key."""
        fields = keys.to_table_metadata(self.fields)
        if not self.said.dry_run:
            self.made = self._target.commit(self.base, fields)


# -- what is said --------------------------------------------------------------------------------------------------


def _tell_of_rewrap(change: _Change, report: KeyRewrapReport, new_kms: str | None) -> None:
    said = change.said
    if said.json:
        _say_json(
            change,
            old_key_ids=list(report.old_table_key_ids),
            new_key_id=report.new_table_key_id,
            keys=list(report.rewrapped),
            unopened=list(report.unopened),
            untouched=list(report.untouched),
        )
        return
    would = "would be" if said.dry_run else "is" if len(report.rewrapped) == 1 else "are"
    what = counted(len(report.rewrapped), "key encryption key")
    new = report.new_table_key_id
    # The same id at another service is another key.
    left = [each for each in report.old_table_key_ids if each != new or new_kms]
    if not said.quiet and left:
        say(f"{what} {would} under the master key {new!r}, no more under {', '.join(map(repr, left))}")
    elif not said.quiet:
        say(f"{what} {would} wrapped again under the master key {new!r}")
    if left and not said.quiet:
        from ags1.iceberg.conversion.operations import REWRAPPED

        say(REWRAPPED)
    _list(said, "warning", "does not open, neither before nor now", report.unopened)
    _list(said, "warning", "is under no key encryption key, and stays as it is", report.untouched)
    _tell_of_catalog(change, new_key_id=report.new_table_key_id)


def _tell_of_prune(change: _Change, report: PruneReport) -> None:
    said = change.said
    if said.json:
        fields = ("dropped", "kept", "unjudged", "missing")
        _say_json(change, **{name: list(getattr(report, name)) for name in fields})
        return
    _list(said, "warning", "is named by a snapshot and missing: that snapshot cannot be opened", report.missing)
    if not report.dropped:
        if not said.quiet:
            say(f"{change.old}: all {len(report.kept):,} keys are in use; nothing was written")
        return
    if not said.quiet:
        for key_id in report.dropped:
            say(f"  {key_id}")
        verb = "would be dropped" if said.dry_run else "dropped"
        say(f"{counted(len(report.dropped), 'key')} {verb}, {len(report.kept):,} kept")
    _list(said, "note", "stays because it has what this version does not know", report.unjudged)
    _tell_of_catalog(change)


def _say_json(change: _Change, **fields: Any) -> None:
    made = change.made
    say_json(
        {
            "old_metadata": change.old,
            "new_metadata": None if made is None else made.metadata_location,
            "new_metadata_hash": None if made is None else made.file_hash,
            **fields,
            "dry_run": change.said.dry_run,
            "error": None,
        }
    )


def _list(said: Namespace, kind: str, what: str, key_ids: tuple[str, ...]) -> None:
    if kind == "note" and said.quiet:
        return
    warn_some(
        [f"{kind}: key {key_id} {what}" for key_id in key_ids], f"{kind}: and {{:,}} more (--json names them all)"
    )


def _tell_of_catalog(change: _Change, new_key_id: str | None = None) -> None:
    from ags1.iceberg.catalogs.file import has_no_catalog

    if change.made is None:
        if not change.said.quiet:
            what = "would be committed" if change.where.catalog else _would_write(change)
            say(f"{what}; nothing was written")
        return
    new, old = change.made.metadata_location, change.old
    if change.said.quiet:
        say(new)
        return
    readers = f"Writers and readers need a KMS that unwraps with {new_key_id!r} from now on."
    if change.where.catalog:
        say(f"committed {new or change.where.table} to {change.where.catalog}")
        if new_key_id is not None:
            say(readers)
        return
    say(f"wrote {new}")
    if has_no_catalog(old, change.base.document.fields):
        more = "" if new_key_id is None else f" {readers}"
        say(f"The table has no catalog, and is changed.{more}")
        return
    sql = new.replace("'", "''")
    for line in (
        "",
        "The table changes when its catalog is told, which still has",
        f"  {old}",
        "Stop its writers, take the table out of the catalog without deleting its files, and register the new file",
        "(with --catalog NAME, and the table's name there, this command commits by itself):",
        f"  PyIceberg  catalog.drop_table(NAME); catalog.register_table(NAME, {new!r})",
        "  Spark      DROP TABLE NAME  (never with PURGE)",
        f"             CALL CATALOG.system.register_table(table => 'NAME', metadata_file => '{sql}')",
        "or, in a catalog that keeps nothing but metadata_location, replace that, if it is the old one still.",
    ):
        say(line)
    if new_key_id is not None:
        for line in (
            f"A Hive catalog keeps {KEY_ID} and a hash of the metadata too, and takes neither from a new",
            "metadata_location: with it, register the table.",
            readers.replace("now", "then"),
        ):
            say(line)


def _would_write(change: _Change) -> str:
    from ags1.iceberg.catalogs.file import next_name
    from ags1.iceberg.metadata.metadata_document import version_of

    return f"would write metadata file {version_of(next_name(change.old))} beside {change.old}"
