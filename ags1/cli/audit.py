"""``ags1 audit``: what of a lake is protected, and what is not."""

from __future__ import annotations

import contextlib
from argparse import Namespace

from ags1.cli.command import Positional, command
from ags1.cli.output import say, say_json, warn
from ags1.cli.paths import places
from ags1.cli.report import Reporter
from ags1.support.exit_codes import worst_code
from ags1.support.reports import ERROR, VIOLATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.audit import AuditReport


@command(
    locations=Positional("LOCATION...", "directory, file, glob or URL, with all that is below it"),
    policy="allow whole",
    kms="KMS",
    threads="threads",
    said="SAY",
    changed={"threads": "files to look at at once (32)", "quiet": "say nothing but errors and violations"},
)
def audit(locations: list[str], policy: Namespace, kms: Namespace, threads: int | None, said: Namespace) -> int:
    """Reads the beginning of each file, samples of it, and the footers of Parquet, and decrypts no data. Without its
    key nothing proves that a file is encrypted; `verify` proves it.

    examples:
      ags1 audit s3://lake/
      ags1 audit s3://lake/ --allow 'public/*' --kms 'aws:?region=eu-central-1'
      ags1 audit data/ --allow '*.md' --quiet || echo "not protected: $?"
      ags1 audit s3://lake/ s3://archive/ --json

    Each location has a report of its own, and the exit code is the worst of theirs.
    A pattern without / is compared with each component of a name, one with / with
    the whole name. --allow '*' allows everything.

    exit codes: 0 all files outside of --allow look encrypted;
      1 something is damaged; 3 the KMS refused a key;
      4 something could not be read; 5 a file outside of --allow is not encrypted
    """
    from ags1.audit import audit as look
    from ags1.cli.kms.clients import client_of

    with contextlib.ExitStack() as stack:
        client: Any = stack.enter_context(client_of(kms)) if kms.kms else None
        reporter = stack.enter_context(Reporter(said, ("looking at", "looked at")))
        reports = [
            look(each, kms=client, threads=threads, progress=reporter.progress_of(each), **vars(policy))
            for each in places(locations)
        ]
    for report in reports:
        _say(report, said)
    return worst_code([each.exit_code for each in reports])


def _say(report: AuditReport, said: Namespace) -> None:
    if said.json:
        say_json(report.to_dict())
    elif said.quiet:
        for line in report.lines():
            if line.startswith((ERROR, VIOLATION)) or not report.files:
                warn(f"ags1: {line}")
    else:
        for line in str(report).split("\n"):
            say(line)
