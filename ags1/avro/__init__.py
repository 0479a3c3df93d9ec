"""Avro: containers by plaintext range, their codecs and schemas, and their rows as Arrow columns."""

from __future__ import annotations

from ags1.avro.containers import (
    AvroBlock,
    AvroHeader,
    PlainContainer,
    check_schema,
    iter_blocks,
    plain_blocks,
    read_header,
    read_split,
    splits,
)

__all__ = [
    "AvroBlock",
    "AvroHeader",
    "PlainContainer",
    "check_schema",
    "iter_blocks",
    "plain_blocks",
    "read_header",
    "read_split",
    "splits",
]
