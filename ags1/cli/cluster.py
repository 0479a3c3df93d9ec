"""Commands with ``--spark``: the functions of :mod:`ags1.spark`, for a terminal, spark-submit or a scheduler.

arguments  -->  session  -->  one function  -->  summary or JSON, a report file, an exit code
"""

from __future__ import annotations

import errno
import os
from argparse import Namespace
from typing import Any

import ags1.spark
from ags1.cli.command import OnSpark
from ags1.cli.output import OutputClosed, say, say_json, warn
from ags1.cli.paths import no_file_left
from ags1.cli.report import code_of
from ags1.errors import Ags1Error, KeyAccessError, UnsupportedError
from ags1.iceberg.configuration import configuration_fault
from ags1.spark.command_session import SparkFailed, as_error, error_of_kind, locate, make_session
from ags1.support.exit_codes import (
    EXIT_DATA,
    EXIT_IO,
    EXIT_OK,
    EXIT_UNPROTECTED,
    EXIT_USAGE,
    UsageError,
    describe,
    exit_code,
    worst_code,
)
from ags1.support.interrupts import interrupted_code
from ags1.support.words import counted

# Options of the command itself; all others are passed to a function of ags1.spark.
OWN_OPTIONS = frozenset(
    ("called", "needed", "run", "json", "report", "traceback", "master", "remote", "conf", "yes", "spark", "catalog")
)
_SHOWN = 5
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_CONVERSIONS = frozenset({"encrypt_table", "decrypt_table", "rekey_table", "compact_table"})
# Errors whose message says enough.
_SAID = (UsageError, Ags1Error, OSError, ValueError, ImportError, MemoryError, SparkFailed)
# What verifies a table. Errors of a dataset have kinds of their own.
_OF_TABLES = ("verify_table", "verify_files")
_RESUMED = ("encrypt", "decrypt", "rekey")


def run_on_spark(name: str, form: OnSpark, options: Namespace) -> int:
    """Run the cluster form of a command; if files failed, return the worst of their exit codes."""
    job = _Job(name, form, options)
    try:
        return job.run()
    except KeyboardInterrupt:
        more = ": finished work is kept; run the same command again to continue" if name.endswith(_RESUMED) else ""
        return job.failed(f"interrupted{more}", interrupted_code())
    except OutputClosed:
        raise
    except Exception as error:
        if options.traceback:
            import traceback

            traceback.print_exc()
        seen = as_error(error)
        if not isinstance(seen, _SAID):
            seen = configuration_fault() or seen
        code = EXIT_USAGE if isinstance(seen, UsageError) else exit_code(seen)
        return job.failed(_described(seen), code, getattr(error, "result", None))
    finally:
        job.close()


def _described(error: BaseException) -> str:
    """One line that describes an error, without a traceback."""
    text = describe(error)
    if not isinstance(error, _SAID):
        text = f"{type(error).__name__}: {text} (--traceback shows where)"
    return " ".join(text.splitlines())


def _code_of(kind: str | None, function: str) -> int:
    """The exit code for failed files with errors of a class; None for files that are only not protected."""
    if kind is None:
        return EXIT_UNPROTECTED
    if kind.islower():
        # Findings of the verification of a dataset.
        return EXIT_IO if kind == "unreadable" else EXIT_DATA
    error = error_of_kind(kind)
    if function in _OF_TABLES and not isinstance(error, (KeyAccessError, UnsupportedError)):
        # As without Spark: a file that cannot be read is one that fails.
        return EXIT_DATA
    return exit_code(error)


class _Job:
    """One command, from its session to its last line of output."""

    def __init__(self, name: str, form: OnSpark, options: Namespace) -> None:
        self._options = options
        self._command = name
        self._function = form.function
        self._arguments = {name: value for name, value in vars(options).items() if name not in OWN_OPTIONS}
        self._arguments |= form.further
        if "quiet" in self._arguments:
            self._arguments["progress"] = not self._arguments.pop("quiet")
        self._spark: Any = None

    def run(self) -> int:
        # A missing package is said before anything else is done.
        getattr(ags1.spark, self._function)
        if self._arguments.get("kms", "") is None and self._function != "verify_parquet":
            raise UsageError("a KMS is needed: --kms URL or the variable AGS1_KMS, such as aws:?region=eu-central-1")
        path = self._arguments.pop("pin", None)
        if path is None:
            return self._run()
        from ags1.cli.dataset.datasets import load_pins, save_pins
        from ags1.spark.datasets import open_dataset

        # `source` of what reads a dataset, else `target`.
        place = self._arguments["source" if self._command in ("dataset decrypt", "dataset verify") else "target"]
        pins = self._arguments["pins"] = load_pins(path, place)
        code = self._run()
        if code in (EXIT_OK, EXIT_UNPROTECTED):
            known = self._arguments.get("key_id")
            with open_dataset(locate(place, self._spark), self._checked_kms(), None, known, pins) as found:
                save_pins(path, pins, found)
        return code

    def _run(self) -> int:
        function = self._function
        if function in _CONVERSIONS:
            return self._convert(function)
        self._check_report()
        self._check_source()
        arguments = {**self._arguments, **({"kms": self._checked_kms()} if "kms" in self._arguments else {})}
        if function == "verify_table":
            arguments["metadata_location"] = self._in_catalog(arguments["metadata_location"])
        result: Any = getattr(ags1.spark, function)(self._session(), **arguments)
        if not isinstance(result, ags1.spark.Result):
            return self._tell_of(result.to_dict(), [str(result)])
        # Files that were left out are reported, and count as found.
        if not (result.counts or result.notes) and (unmatched := self._unmatched()):
            return self.failed(unmatched, EXIT_USAGE, result)
        return self._tell(result)

    def _unmatched(self) -> str | None:
        """The problem of a place without files."""
        arguments = self._arguments
        return no_file_left(str(arguments.get("source")), arguments.get("include"), arguments.get("exclude"))

    def close(self) -> None:
        """Stop the session."""
        if self._spark is not None:
            try:
                self._spark.stop()
            except (Exception, KeyboardInterrupt):
                # The job ends in any case, and an earlier error is more useful.
                return

    def failed(self, message: str, code: int, result: Any = None) -> int:
        """Report why the run ended and what it had done before; return the exit code."""
        try:
            report = self._write_report(result)
        except Exception as error:
            report = None
            warn(f"ags1: no report was written: {_described(error)}")
        if self._options.json:
            say_json(self._record(result, report) | {"ok": False, "error": message})
        else:
            warn(f"ags1: {message}")
        return code

    # -- before ----------------------------------------------------------------------------------------------------

    def _session(self) -> Any:
        options = self._options
        if self._spark is None:
            if _SUBMITTED in os.environ and (options.master or options.remote):
                raise UsageError("spark-submit has chosen the master already: give it --master, not this job")
            if options.master and options.remote:
                raise UsageError("give one of --master and --remote")
            self._spark = make_session(
                self._command, options.master, options.remote, options.conf or {}, loud=options.traceback
            )
        return self._spark

    def _checked_kms(self) -> Any:
        """The URL. An invalid one is refused before Spark is started."""
        from ags1.kms import load

        url = self._arguments["kms"]
        for each in (url, self._arguments.get("new_kms")):
            if each is not None:
                close = getattr(load(each), "close", None)
                if close is not None:
                    close()
        return url

    def _in_catalog(self, table: str) -> Any:
        """The table; with --catalog in that one, which is loaded before Spark is started."""
        if self._options.catalog is None:
            return table
        from ags1.iceberg.catalogs import loaded

        return loaded(self._options.catalog, **(self._arguments.get("properties") or {})), table

    def _check_source(self) -> None:
        """Refuse a missing local source before Spark is started."""
        source = self._arguments.get("source")
        if self._options.remote or not isinstance(source, str):
            return
        place = locate(source)
        if place.is_local and not os.path.lexists(place.path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)

    def _check_report(self) -> None:
        report = self._options.report
        if report is None or "://" in report:
            return
        directory = os.path.dirname(os.path.abspath(report))
        if not os.path.isdir(directory):
            raise UsageError(f"--report: there is no directory {directory}: make it first, or correct the name")
        if os.path.isdir(report):
            raise UsageError(f"--report: {report} is a directory: name a file in it")

    # -- what came of it -------------------------------------------------------------------------------------------

    def _tell(self, result: Any) -> int:
        try:
            report = self._write_report(result)
        except Exception as error:
            # The work is done, and the failure to write the report must not hide that.
            problem = _described(error)
            self._options.report = None
            if not self._options.json:
                for line in str(result).split("\n"):
                    say(line)
            return self.failed(f"the work is done, but the report could not be written: {problem}", EXIT_IO, result)
        if self._options.json:
            say_json(self._record(result, report))
        elif not result.ok or self._arguments.get("progress", True):
            where = report or "--report FILE"
            text = str(result).replace("see the rows with status 'error'", f"{where} has a row for each")
            for line in text.split("\n"):
                (say if self._arguments.get("progress", True) else warn)(line)
            for path, reason in result.notes[:_SHOWN]:
                warn(f"ags1: warning: {path}: {reason}")
            if len(result.notes) > _SHOWN:
                warn(f"ags1: warning: ... and {len(result.notes) - _SHOWN:,} more")
        codes = [EXIT_UNPROTECTED] if result.links or result.unchecked else [EXIT_OK]
        if not result.ok:
            codes += [_code_of(each, self._function) for each in result.kinds]
        return worst_code(codes)

    def _record(self, result: Any, report: str | None) -> dict[str, Any]:
        record: dict[str, Any] = {"command": self._command, "ok": result is not None and result.ok, "error": None}
        if not hasattr(self._options, "report"):
            return record
        counts = {} if result is None else result.counts
        failed = counts.get("error", 0) + counts.get("not protected", 0)
        return record | {
            "counts": counts,
            "bytes": 0 if result is None else result.plaintext_bytes,
            "seconds": 0.0 if result is None else round(result.seconds, 3),
            "version": None if result is None else result.version,
            "errors": [{"path": path, "error": text} for path, text in (result.errors if result is not None else ())],
            "notes": [{"path": path, "reason": text} for path, text in (result.notes if result is not None else ())],
            **({} if result is None or result.keys_checked else {"keys_checked": False}),
            "report": report,
            "error": f"{counted(failed, 'file')} failed" if failed else None,
        }

    def _write_report(self, result: Any) -> str | None:
        report: str | None = getattr(self._options, "report", None)
        if report is None or result is None:
            return None
        place = locate(report, self._spark)
        if place.is_local:
            result.write_report(place.path)
            return report
        import tempfile

        from ags1.storage import open_output

        with tempfile.TemporaryDirectory(prefix="ags1-report-") as directory:
            file = os.path.join(directory, place.name)
            result.write_report(file)
            with open(file, "rb") as source, open_output(place, expected=os.path.getsize(file)) as output:
                while piece := source.read(8 << 20):
                    output.write_owned(piece)
                output.commit()
        return report

    # -- commands that are no runs over many files -------------------------------------------------------------------

    def _convert(self, function: str) -> int:
        dry_run: bool = self._arguments["dry_run"]
        # A conversion cannot be undone. Even its plan would take a session.
        if not (dry_run or self._options.yes):
            raise UsageError("a job cannot ask: give --dry-run to see what it would do, or --yes to have it done")
        arguments = {**self._arguments, "kms": self._checked_kms()}
        table = self._in_catalog(arguments.pop("table"))
        report = getattr(ags1.spark, function)(self._session(), table, **arguments)
        problems = getattr(report, "problems", []) if dry_run else []
        fields = report.to_dict()
        found = {"ok": report.ok, "plan": fields if dry_run else None, "report": None if dry_run else fields}
        shown = dry_run or arguments["progress"]
        self._tell_of(found, [str(report)] if shown else [], problems[0] if problems else None)
        return code_of(report, quiet=not (shown or self._options.json))

    def _tell_of(self, fields: dict[str, Any], lines: list[str], error: str | None = None) -> int:
        if self._options.json:
            say_json({"command": self._command, "ok": error is None, "error": error, **fields})
        else:
            for line in "\n".join(lines).split("\n") if lines else ():
                say(line)
        return EXIT_OK if error is None else EXIT_DATA
