"""A repair: files that a verification found damaged are encrypted again from their source."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import replace

from ags1.dataset._files import Files
from ags1.dataset.reports import Problem, RunReport
from ags1.dataset.writing import Options


def repair_files(
    files: Files,
    problems: Iterable[Problem],
    options: Options,
    write: Callable[[Options], RunReport],
    report: RunReport,
) -> RunReport:
    """Write what is damaged again, and list in the report what could not be repaired; see `Dataset.repair`.

    `files` are those of the last version, also after `write`. `report` is the one if nothing can be written.
    """
    faults = [each for each in problems if each.kind != "foreign" and not each.is_harmless]
    damaged = {each.path: each for each in faults if each.path in files}
    readable = frozenset(path for path, each in damaged.items() if each.kind != "unreadable")
    if readable:
        report = write(replace(options, only=readable))
    report.repaired = report.done
    told = {path for path, _ in report.errors}
    is_written = report.changed and not options.dry_run
    found = {path for path in readable if is_written and files[path].version == report.version}
    report.errors += (
        (path, FileNotFoundError(errno.ENOENT, f"{each.kind}, and not in the source", path))
        for path, each in damaged.items()
        if path not in found | told and not (options.dry_run and path in report.paths)
    )
    return report
