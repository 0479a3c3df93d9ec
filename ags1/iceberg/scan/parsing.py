"""The metadata of a table in the form that PyIceberg parses, where the table has what PyIceberg refuses."""

from __future__ import annotations

import json
import re
from typing import Any

from ags1.iceberg.keys.document import Document
from ags1.iceberg.scan.variant import without_variants

_KNOWN_TRANSFORM = re.compile(r"identity|void|year|month|day|hour|(bucket|truncate)\[[0-9]+\]")


def metadata_text(document: Document) -> str:
    """Return the table's metadata as PyIceberg can parse it.

    It has no variants and no transforms of later versions, and a manifest list for each snapshot.
    """
    fields = document.fields
    made = {
        "schemas": without_variants(fields.get("schemas")),
        "partition-specs": _without_unknown(fields.get("partition-specs")),
        "sort-orders": _without_unknown(fields.get("sort-orders")),
    }
    if any("manifest-list" not in each for each in fields.get("snapshots") or ()):
        # Format version 1 may name the manifests here.
        made["snapshots"] = [{"manifest-list": "", **each} for each in fields["snapshots"]]
    is_known = all(fields.get(name) == each for name, each in made.items())
    return document.text if is_known else json.dumps({**fields, **made})


def _without_unknown(listed: Any) -> Any:
    """Return specs or orders with an unknown transform where PyIceberg refuses one, or takes it for another."""
    if isinstance(listed, list):
        return [_without_unknown(each) for each in listed]
    if not isinstance(listed, dict):
        return listed
    if isinstance(listed.get("fields"), list):
        return {**listed, "fields": _without_unknown(listed["fields"])}
    sources = listed.get("source-ids", [listed.get("source-id")])
    is_single = isinstance(sources, list) and len(sources) == 1
    if is_single and _KNOWN_TRANSFORM.fullmatch(str(listed.get("transform"))):
        return listed
    source = sources[0] if isinstance(sources, list) and sources else 0
    return {**listed, "source-id": source, "transform": "unknown"}
