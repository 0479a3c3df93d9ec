"""Which backend a path or URL has, and what its parts are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ags1.storage import Location, is_url


@pytest.mark.parametrize(
    ("text", "scheme", "container", "path"),
    [
        ("data/sales.csv", "file", "", "data/sales.csv"),
        ("/data/a b#?.csv", "file", "", "/data/a b#?.csv"),
        ("file:///data/sales.csv", "file", "", "/data/sales.csv"),
        ("s3://lake/raw/sales.csv", "s3", "lake", "raw/sales.csv"),
        ("s3a://lake/raw/sales.csv", "s3", "lake", "raw/sales.csv"),
        ("S3N://lake/", "s3", "lake", ""),
        ("s3://lake", "s3", "lake", ""),
        ("gcs://lake/a", "gs", "lake", "a"),
        ("abfs://raw@account.dfs.core.windows.net/a/b", "abfss", "raw@account.dfs.core.windows.net", "a/b"),
        ("az://raw/a", "az", "raw", "a"),
        ("memory://a/b", "memory", "", "memory://a/b"),
        ("hdfs://name:8020/a", "hdfs", "", "hdfs://name:8020/a"),
        ("simplecache::s3://lake/a", "simplecache", "", "simplecache::s3://lake/a"),
        ("C:\\data", "file", "", "C:\\data"),
    ],
)
def test_a_path_or_url_is_taken_apart(text: str, scheme: str, container: str, path: str) -> None:
    location = Location(text)
    assert (location.scheme, location.container, location.path, str(location)) == (scheme, container, path, text)


def test_bytes_and_path_objects_are_paths(tmp_path: Path) -> None:
    assert Location(os.fsencode(tmp_path)) == Location(tmp_path) == Location(str(tmp_path))
    assert os.fspath(Location(tmp_path)) == str(tmp_path)


def test_a_remote_location_is_no_path() -> None:
    with pytest.raises(TypeError, match="not a local file"):
        os.fspath(Location("s3://lake/a"))


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="names no bucket: write s3://BUCKET/NAME"):
        Location("s3:///a")


@pytest.mark.parametrize("text", ["s3:/lake/a", "GS:/lake", "abfss:/raw@account/a"])
def test_a_url_with_one_slash_is_not_taken_for_a_directory(text: str) -> None:
    with pytest.raises(ValueError, match=r"URL with one slash: write \w+://"):
        Location(text)
    assert Location(f"./{text}").is_local


@pytest.mark.parametrize(
    "root", ["vault", "vault/", "file:///vault", "s3://lake/vault", "s3://lake/vault/", "s3://lake"]
)
def test_names_are_joined_with_one_slash(root: str) -> None:
    joined = Location(root).join("day=1", "a/b.csv")
    assert str(joined) == f"{root.rstrip('/')}/day=1/a/b.csv"
    assert joined.name == "b.csv"


def test_options_go_along_and_are_copied() -> None:
    options = {"region": "eu-central-1"}
    location = Location("s3://lake/a", options)
    options["region"] = "changed"
    assert location.join("b").storage_options == {"region": "eu-central-1"}
    assert Location(location) == location != Location("s3://lake/a")
    assert "eu-central-1" not in repr(location)


@pytest.mark.parametrize("text", ["a", "a:b", "C://data", "1://x", "://x", "::x"])
def test_what_has_no_scheme_is_no_url(text: str) -> None:
    assert not is_url(text)
