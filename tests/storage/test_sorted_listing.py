"""Listings by name that are never all in memory: the same files as list_files has, in whatever order they come."""

from __future__ import annotations

import errno
import random
import sqlite3
from typing import Any

import pytest

from ags1.storage import Location, SortedListing, list_files, sorted_listing
from tests.servers.s3 import S3Server

PARTS = ("a", "a.b", "a-b", "a b", "ä", "\U0001f600", "z", "part-0001")
WHERE = Location("s3://lake/raw")


def some_names(rng: random.Random) -> list[str]:
    return sorted({"/".join(rng.choice(PARTS) for _ in range(rng.randint(1, 3))) for _ in range(60)})


def check(listing: SortedListing, expected: list[tuple[str, int]], rng: random.Random) -> None:
    assert [(each.name, each.size) for each in listing] == expected
    sizes = dict(expected)
    asked = [*sizes, *(f"{name}{more}" for name in sizes for more in ("!", "/", "0", "/a")), "", "0", "zz"]
    for name in rng.sample(asked, len(asked)):
        assert listing.size_of(name) == sizes.get(name)
        assert listing.has_below(name) == any(each.startswith(f"{name}/") for each in sizes)


@pytest.mark.parametrize("in_order", [True, False])
def test_a_listing_in_any_order_becomes_one_by_name(monkeypatch: pytest.MonkeyPatch, in_order: bool) -> None:
    rng = random.Random(5)
    rows = [(name, rng.randrange(9), 1_700_000_000_000_000_000, rng.choice((None, '"x"'))) for name in some_names(rng)]
    # S3 Express, for example, lists in no order.
    given = rows if in_order else rng.sample(rows, len(rows))
    monkeypatch.setattr(sorted_listing, "remote_rows", lambda *_: iter(given))
    with SortedListing(WHERE) as listing:
        assert [(each.name, each.size, each.modified, each.etag) for each in listing] == rows
        assert {each.location for each in listing} == {WHERE.join(row[0]) for row in rows}
        check(listing, [row[:2] for row in rows], rng)


def test_objects_of_a_store_are_listed_by_name(s3_server: S3Server, s3_bucket: str) -> None:
    rng = random.Random(6)
    client = s3_server.client()
    for name in ("a", "a b", "a-b/c", "a.b/c", "b/ä", "b/\U0001f600", "z"):
        client.put_object(Bucket=s3_bucket, Key=f"raw/{name}", Body=bytes(rng.randrange(9)))
    where = Location(f"s3://{s3_bucket}/raw", s3_server.storage_options())
    expected = list_files(where)
    with SortedListing(where) as listing:
        check(listing, [(each.name, each.size) for each in expected], rng)
        assert [(each.modified, each.etag) for each in listing] == [(each.modified, each.etag) for each in expected]
    with SortedListing(where, outside=where.join("b")) as listing:
        assert [each.name for each in listing] == ["a", "a b", "a-b/c", "a.b/c", "z"]
    with pytest.raises(FileNotFoundError):
        SortedListing(where.join("nowhere"))


def test_a_full_disk_is_named_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def full(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made = connect(*arguments, **options)
        made.execute("pragma max_page_count = 3")
        return made

    monkeypatch.setattr(sqlite3, "connect", full)
    monkeypatch.setattr(sorted_listing, "remote_rows", lambda *_: ((f"name {each}", 0, 0, None) for each in range(999)))
    with pytest.raises(OSError, match="set TMPDIR") as error:
        SortedListing(WHERE)
    assert error.value.errno == errno.ENOSPC


def test_a_length_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_listing, "remote_rows", lambda *_: iter([("name", 1 << 64, 0, None)]))
    with pytest.raises(OSError, match="a length or a time that is none"):
        SortedListing(WHERE)
