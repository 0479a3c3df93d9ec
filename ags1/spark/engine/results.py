"""The results of a run, file by file: collected on the driver's disk, and made a DataFrame on request.

The run is over when there is a result: reading it again repeats no work.
"""

from __future__ import annotations

import builtins
import os
import re
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import ags1.errors as errors
import ags1.kms as kms
from ags1.spark.engine.runner import Outcome
from ags1.support.arguments import spelled
from ags1.support.reports import NOT_CHECKED, NOT_PROTECTED, Report, VerifyReport
from ags1.support.words import counted, size_text, with_name

SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("target", pa.string()),
        ("plaintext_length", pa.int64()),
        ("file_length", pa.int64()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("attempt", pa.int32()),
        ("seconds", pa.float64()),
        ("bytes_per_second", pa.float64()),
    ]
)
_ERRORS = 1000
_ROWS = 50_000
_ERRNO = re.compile(r"\[Errno ([0-9]+)\]")


class Result(Report):
    """What a run did.

    Attributes
    ----------
    verb : str
        What was done: "encrypt" ...
    ok : bool
        Whether no file failed.
    counts : dict of str to int
        Files by status: "ok", "skipped" (done before), "left out", "error",
        "not protected" (by verification); and "unchanged", which get no row: files that the target already had.
    copied : int
        Files that :func:`ags1.spark.encrypt_parquet` and its like copied unchanged; they are among "ok".
    plaintext_bytes : int
        Of the files that were done.
    seconds : float
        From the beginning to the end.
    errors : list of (str, str)
        Paths and messages of the first thousand files that failed.
    notes : list of (str, str)
        What was left out, and why; other remarks.
    links : int
        Links that were left out: what they lead to was not looked at.
    unchecked : int
        Verified files of which some columns were not checked, because their keys are missing and that was allowed.
    version : int or None
        Version of the dataset, where there is one.
    kinds : set of str or None
        Classes of the errors of files that failed; None of files that are not protected.
    """

    def __init__(self, spark: Any, verb: str, file: str) -> None:
        self._spark = spark
        self.verb = verb
        self._file = file
        self._remove = weakref.finalize(self, Path(file).unlink, missing_ok=True)
        self.counts: dict[str, int] = {}
        self.copied = 0
        self.plaintext_bytes = 0
        self.seconds = 0.0
        self.errors: list[tuple[str, str]] = []
        self.notes: list[tuple[str, str]] = []
        self.links = self.unchecked = 0
        self.version: int | None = None
        self.kinds: set[str | None] = set()

    @property
    def ok(self) -> bool:
        """Whether no file failed, and none is less protected than allowed."""
        return not (self.counts.get("error") or self.counts.get("not protected"))

    def tables(self) -> Iterator[pa.Table]:
        """The rows, in batches."""
        with pa.memory_map(self._file) as source:
            for batch in pa.ipc.open_stream(source):
                yield pa.Table.from_batches([batch])

    def table(self) -> pa.Table:
        """All rows, as an Arrow table."""
        with pa.memory_map(self._file) as source:
            return pa.ipc.open_stream(source).read_all()

    @property
    def dataframe(self) -> Any:
        """All rows, as a DataFrame.

        Columns: path, target, plaintext_length, file_length, status, error, attempt, seconds, and bytes_per_second,
        which is of plaintext.
        """
        return self._spark.createDataFrame(self.table())

    def write_report(self, path: str) -> None:
        """Write the rows to a Parquet file, or, with the ending ``.json``, as JSON lines."""
        if path.endswith((".json", ".jsonl")):
            import json

            with open(path, "w", encoding="utf-8") as text:
                for table in self.tables():
                    text.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
            return
        import pyarrow.parquet as pq

        with pq.ParquetWriter(path, SCHEMA) as writer:
            for table in self.tables():
                writer.write_table(table)

    def _text(self) -> str:
        done = self.counts.get("ok", 0)
        rate = self.plaintext_bytes / self.seconds if self.seconds > 0 else 0.0
        parts = [
            f"{counted(done, 'file')} ({size_text(self.plaintext_bytes)}) in {self.seconds:.1f} s, {size_text(rate)}/s"
        ]
        if self.copied:
            parts.append(f"{self.copied:,} of them copied unchanged")
        names = {"skipped": "done before", "unchanged": "unchanged", "left out": "left out", "error": "failed"}
        names["not protected"] = "not protected"
        parts += [f"{self.counts[name]:,} {text}" for name, text in names.items() if self.counts.get(name)]
        if self.version is not None:
            parts.append(f"version {self.version}")
        lines = [f"ags1 {self.verb}: " + ", ".join(parts)]
        lines += [f"  {path}: {message}" for path, message in self.errors[:5]]
        count = self.counts.get("error", 0) + self.counts.get("not protected", 0)
        if len(self.errors) > 5:
            lines.append(f"  ... and {count - 5:,} more: see the rows with status 'error'")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{str(self).splitlines()[0]}>"


class Recorder:
    """Collects outcomes of a run that begins; its memory does not grow with their number.

    With ``on_error="fail"``, an outcome with one of these statuses is raised; `keeps` is whether a repeated run goes on
    from there.
    """

    def __init__(
        self, spark: Any, verb: str, on_error: str = "collect", *, keeps: bool = True,
        failures: Sequence[str] = ("error", NOT_PROTECTED),
    ) -> None:  # fmt: skip
        self._started = time.monotonic()
        self._failures, self._keeps = failures if on_error == "fail" else (), keeps
        descriptor, file = tempfile.mkstemp(prefix="ags1-result-", suffix=".arrows")
        os.close(descriptor)
        self.result = Result(spark, verb, file)
        self._sink = pa.OSFile(file, "wb")
        self._writer = pa.ipc.new_stream(self._sink, SCHEMA)
        self._rows: list[Outcome] = []

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add rows, one for each file, and raise the first error among them, if that ends the run."""
        result = self.result
        failed: Outcome | None = None
        for each in outcomes:
            self._rows.append(each)
            if each.status in self._failures:
                failed = failed or each
            result.counts[each.status] = result.counts.get(each.status, 0) + 1
            if each.status == "ok":
                result.plaintext_bytes += each.plaintext_length
            elif each.status in ("error", "not protected"):
                result.kinds.add((each.kind or "AuthenticationError") if each.status == "error" else None)
                if len(result.errors) < _ERRORS:
                    result.errors.append((each.path, each.error or ""))
            if len(self._rows) >= _ROWS:
                self._write()
        if failed is not None:
            self.fail(failed)

    def fail(self, outcome: Outcome) -> None:
        """End the run with the error of an outcome."""
        self.close()
        raise_for(outcome, self.result.verb, self.result, keeps=self._keeps)

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        columns: list[list[Any]] = [
            [_printable(each.path) for each in rows],
            [_printable(each.target) for each in rows],
            [each.plaintext_length for each in rows],
            [each.file_length for each in rows],
            [each.status for each in rows],
            [None if each.error is None else _printable(each.error) for each in rows],
            [each.attempt for each in rows],
            [each.seconds for each in rows],
            [each.plaintext_length / each.seconds if each.seconds > 0 else None for each in rows],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))

    def close(self) -> Result:
        """Write the last rows, and return the result."""
        if not self._sink.closed:
            self._write()
            self._writer.close()
            self._sink.close()
            self.result.seconds = time.monotonic() - self._started
        return self.result


def _printable(text: str) -> str:
    """A name as text; bytes that are not UTF-8 are escaped."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def outcome_of(path: str, size: int, report: VerifyReport) -> Outcome:
    """The report of a file as a row."""
    outcome = Outcome(path, plaintext_length=size, file_length=size, detail=report.checked)
    if not report.ok:
        worst = next(each for each in report.findings if each.outcome == report.outcome)
        usual = "KeyAccessError" if report.outcome == NOT_CHECKED else "AuthenticationError"
        outcome.status = NOT_PROTECTED if report.outcome == NOT_PROTECTED else "error"
        outcome.error, outcome.kind = report.fault(), worst.details.get("error", usual)
    elif contradictions := report.having("contradiction"):
        outcome.error = f"problem: {contradictions[0].message}"
    return outcome


class FailedFiles(Exception):
    """Mixed into the errors of a run: `result` is what the run did before."""

    result: Result | None = None


def raise_for(outcome: Outcome, verb: str, result: Result | None, *, keeps: bool = True) -> None:
    """Raise the error of a failed outcome, of the class that it had in the worker.

    It is RuntimeError if the class is neither this package's nor Python's. The exception has the attribute ``result``.
    """
    text = with_name(outcome.path, outcome.error or "")
    if keeps:
        text += (
            f". What was done is kept: run it again to continue, or with {spelled('on_error', 'collect')} to do the "
            "others."
        )
    raised = _made(outcome, f"{verb}: {text}")
    raised.result = result
    raise raised


def error_of(outcome: Outcome) -> FailedFiles:
    """The exception of a failed outcome, if its class is available here."""
    return _made(outcome, outcome.error or "")


def _made(outcome: Outcome, text: str) -> FailedFiles:
    name = outcome.kind or ""
    kind = next((found for module in (errors, kms, builtins) if (found := getattr(module, name, None))), None)
    if not (isinstance(kind, type) and issubclass(kind, (errors.Ags1Error, OSError, ValueError))):
        kind = RuntimeError
    try:
        made = _with_result(kind, text)
    except TypeError:
        # UnicodeDecodeError, for example, cannot be made of a message alone.
        made = _with_result(RuntimeError, text)
    number = _ERRNO.match(outcome.error or "")
    if isinstance(made, OSError) and number is not None:
        made.errno = int(number[1])
    return made


def _with_result(kind: type[Exception], text: str) -> FailedFiles:
    made: FailedFiles = type(kind.__name__, (kind, FailedFiles), {"__module__": kind.__module__})(text)
    return made
