"""``ags1 iceberg encrypt``, ``rekey``, ``rewrap``, ``verify`` and ``audit``, of all tables that match a pattern."""

from __future__ import annotations

import argparse

from ags1.cli import say, say_json, warn
from ags1.cli.consent import agreed
from ags1.cli.iceberg.opening import catalog_of
from ags1.cli.report import Reporter
from ags1.errors import AlreadyEncryptedError, KeyAccessError, UnsupportedError
from ags1.support.exit_codes import EXIT_DATA, EXIT_EXISTS, EXIT_KEY, EXIT_UNPROTECTED, EXIT_USAGE, UsageError
from ags1.support.remedies import in_options
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ags1.iceberg import Fleet, FleetReport, FleetTable

# Errors of an audit that say that a key could not be had, and nothing of the table; and those for what is in plaintext.
_KEY_CODES = frozenset({"kek-does-not-open"})
_PLAINTEXT_CODES = frozenset({"table-not-encrypted", "snapshot-without-key", "file-plaintext"})
# Options of one table, by their attributes.
_OF_ONE = {
    "metadata_hash": "--expected-metadata-hash",
    "pin": "--pin",
    "table_key_id": "--expected-key-id",
    "new_kms": "--new-kms",
    "enable_only": "--enable-only",
    "threads": "--threads",
    "ref": "--ref",
}


def encrypt(options: argparse.Namespace) -> int:
    return _changed(options, "Encrypt", lambda fleet, more: fleet.encrypt(options.key_id, **_shown(options), **more))


def rekey(options: argparse.Namespace) -> int:
    if options.new_key_id is None:
        raise UsageError(
            "many tables are re-keyed under another master key, by which a later run sees what is done: say "
            "--new-key-id ID"
        )
    return _changed(options, "Re-key", lambda fleet, more: fleet.rekey(options.new_key_id, **_shown(options), **more))


def rewrap(options: argparse.Namespace) -> int:
    return _changed(options, "Re-wrap", lambda fleet, more: fleet.rewrap(options.new_key_id, **more))


def verify(options: argparse.Namespace) -> int:
    return _run(
        options,
        lambda fleet, progress: fleet.verify(
            options.snapshot_id, allow_plaintext=options.allow_plaintext, progress=progress
        ),
    )


def audit(options: argparse.Namespace) -> int:
    return _run(options, lambda fleet, progress: fleet.audit(options.snapshot_id, progress=progress))


def code_of(report: Any) -> int:
    """The exit code for what was found in one table."""
    if report.ok:
        return 0
    if hasattr(report, "findings"):
        errors = {each.code for each in report.findings if each.severity == "error"}
        if errors <= _PLAINTEXT_CODES:
            return EXIT_UNPROTECTED
        return EXIT_KEY if errors <= _KEY_CODES else EXIT_DATA
    outcome = getattr(report, "outcome", None)
    if outcome == "not protected":
        return EXIT_UNPROTECTED
    if outcome == "not checked" and all(_lacks_key(each.error) for each in report.failures):
        return EXIT_KEY
    refused = outcome == "not checked" and all(each.error == UnsupportedError.__name__ for each in report.failures)
    return EXIT_USAGE if refused else EXIT_DATA


def _shown(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "expire": options.expire,
        "data_key_length": options.data_key_length,
        "statistics": options.statistics,
        "partition_paths": options.partition_paths,
    }


def _changed(options: argparse.Namespace, what: str, work: Callable[[Fleet, dict[str, Any]], FleetReport]) -> int:
    def run(dry_run: bool) -> Callable[[Fleet, Callable[[int, int], None]], FleetReport]:
        return lambda fleet, progress: work(fleet, {"dry_run": dry_run, "progress": progress})

    return _run(options, run(options.dry_run), None if options.dry_run else (what, run(True)))


def _run(
    options: argparse.Namespace,
    work: Callable[[Fleet, Callable[[int, int], None]], FleetReport],
    asked: tuple[str, Callable[[Fleet, Callable[[int, int], None]], FleetReport]] | None = None,
) -> int:
    """Do it and say it; `asked` is what to ask before, and what plans it: without a change, nobody is asked."""
    from ags1.cli.kms import client_of
    from ags1.iceberg import Fleet
    from ags1.iceberg.catalogs import other_catalogs

    for name, option in _OF_ONE.items():
        if getattr(options, name, None):
            raise UsageError(f"{option} is for one table, and {options.table} is for many")
    if not options.kms:
        raise KeyAccessError("a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json")
    with client_of(options) as client:
        catalog = catalog_of(options)
        fleet = Fleet(
            catalog,
            options.table,
            kms=client,
            at_once=options.tables_at_once,
            kms_calls_per_second=options.kms_calls_per_second,
            destroyed_key_ids=getattr(options, "destroyed_key_ids", ()),
            allowed_locations=options.allowed_locations,
        )
        report = None
        if asked is not None and not getattr(options, "yes", True):
            with Reporter(options, ("tables", "tables")) as reporter:
                report = asked[1](fleet, lambda done, total: reporter.phase("tables", done, total))
            names = [each.table for each in report.having("would be done")]
            if names:
                report = None
                if not agreed(options, f"{asked[0]} {counted(len(names), 'table')}, {', '.join(names[:3])}...?"):
                    return 0
        if report is None:
            with Reporter(options, ("tables", "tables")) as reporter:
                report = work(fleet, lambda done, total: reporter.phase("tables", done, total))
    lines = in_options(str(report)).splitlines()
    bad = [line for line in lines if line.startswith(("failed: ", "NOT ok: "))]
    problem = None if report.ok else (bad or lines)[0]
    if options.json:
        say_json({"location": options.table, "plan": None, "report": report.to_dict(), "error": problem})
    else:
        for line in lines:
            if not report.ok and ("NOT" in line or "STILL" in line or line.startswith("failed")):
                warn(f"ags1: {line}")
            elif not options.quiet:
                say(line)
    if not report.tables:
        others = other_catalogs(catalog)
        raise FileNotFoundError(2, f"the catalog has no table of such a name{others}", options.table)
    if report.ok:
        return 0 if report.is_proved else EXIT_KEY
    codes = {_code_of(each) for each in report.tables if not each.ok}
    order = (EXIT_DATA, EXIT_KEY, EXIT_UNPROTECTED, EXIT_USAGE, EXIT_EXISTS)
    return next((each for each in order if each in codes), EXIT_DATA)


def _code_of(table: FleetTable) -> int:
    if table.error is not None or table.report is None:
        if (table.error or "").startswith(f"{AlreadyEncryptedError.__name__}:"):
            return EXIT_EXISTS
        return EXIT_KEY if _lacks_key(table.error) else EXIT_DATA
    return code_of(table.report)


def _lacks_key(error: str | None) -> bool:
    return error is not None and error.partition(":")[0] in ("KeyAccessError", "MissingKekError", "ServiceRefusal")
