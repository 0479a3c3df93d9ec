"""``ags1 audit``: what of a lake is protected, and what is not."""

from __future__ import annotations

import argparse
import contextlib

from ags1.cli import say, say_json, warn
from ags1.cli.report import Reporter
from ags1.support.remedies import in_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def audit(options: argparse.Namespace) -> int:
    from ags1.audit import audit as look
    from ags1.cli.kms import client_of

    with contextlib.ExitStack() as stack:
        client: Any = stack.enter_context(client_of(options)) if options.kms else None
        reporter = stack.enter_context(Reporter(options, ("looking at", "looked at")))
        report = look(
            options.location,
            allow=options.allow,
            kms=client,
            whole=options.whole,
            threads=options.threads,
            progress=reporter.progress_of(options.location),
        )
    if options.json:
        say_json(report.to_dict())
    elif options.quiet:
        for each in report.findings:
            if each.severity in ("error", "violation") or not report.files:
                warn(f"ags1: {in_options(str(each))}")
    else:
        for line in in_options(str(report)).split("\n"):
            say(line)
    return report.exit_code
