"""``ags1 iceberg inspect``: a table drawn as a tree of its metadata, keys, snapshots, manifests and files."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from ags1.cli.iceberg.opening import opened, table_command, wanted_snapshots
from ags1.cli.output import say, say_json, warn_some
from ags1.cli.report import Reporter
from ags1.support.exit_codes import describe, exit_code
from ags1.support.typing import Any


@table_command(
    "TABLE moved-from snapshot ref",
    said="LIST",
    fields="metadata_location, tree (kind, name, path, facts, problem, children), error",
    subject="metadata_location",
)
def inspect(where: Namespace, said: Namespace) -> int:
    """Without --kms, what the metadata file says. No key is shown. Data files are not opened: that takes `ags1 iceberg
    verify`.

    examples:
      ags1 iceberg inspect t/ --kms local:keys.json
    """
    from ags1.iceberg import EncryptedTable

    with opened(where, said) as table, Reporter(said, ("reading", "read")):
        root = EncryptedTable(table.location, table.io).tree(wanted_snapshots(where, table))
    # Without a KMS nobody expected to see more than the metadata says.
    errors = [] if table.kms is None else list(dict.fromkeys(_errors(root)))
    if said.json:
        error = describe(errors[0]) if errors else None
        say_json({"metadata_location": table.location, "tree": root.to_dict(), "error": error})
    else:
        for line in root.lines():
            say(line)
        warn_some([describe(each) for each in errors], "and {:,} more errors (--json has them all)", 10)
    return exit_code(errors[0]) if errors else 0


def _errors(node: Any) -> Iterator[Exception]:
    """Why files of a tree could not be read."""
    if node.error is not None:
        yield node.error
    for each in node.children:
        yield from _errors(each)
