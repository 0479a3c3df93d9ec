"""PyIceberg's properties as storage options: they reach the store, or are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from ags1.iceberg.locations import location_of, storage_options_of
from ags1.storage import create, read_whole
from tests.servers.s3 import S3Server

S3 = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.region": "us-west-2"}


@pytest.mark.parametrize(
    ("properties", "url", "expected"),
    [
        (S3, None, {"access_key_id": "a", "secret_access_key": "b", "region": "us-west-2"}),
        ({"client.region": "eu-west-1", "uri": "http://x"}, None, {"region": "eu-west-1"}),
        ({"client.region": "eu-west-1", "s3.region": "us-west-2"}, "s3://b/k", {"region": "us-west-2"}),
        ({**S3, "gcs.oauth2.token": "t"}, "gs://b/k", {"bearer_token": "t"}),
        ({"adls.account-name": "n", "adls.account-key": "k"}, None, {"account_name": "n", "account_key": "k"}),
        (
            {"adls.sas-token.one.dfs.core.windows.net": "1", "adls.sas-token.two.dfs.core.windows.net": "2"},
            "abfss://box@two.dfs.core.windows.net/k",
            {"sas_token": "2"},
        ),
        (
            {"adls.connection-string": "DefaultEndpointsProtocol=https;AccountName=n;AccountKey=k=="},
            "abfss://box@n.dfs.core.windows.net/k",
            {"account_name": "n", "account_key": "k=="},
        ),
        (S3, "/tmp/t", {}),
        ({}, None, {}),
    ],
)
def test_properties_become_the_options_of_their_store(
    properties: dict[str, str], url: str | None, expected: dict[str, Any]
) -> None:
    assert storage_options_of(properties, url) == expected


def test_properties_of_two_stores_need_a_location() -> None:
    with pytest.raises(ValueError, match="say which location"):
        storage_options_of({**S3, "gcs.oauth2.token": "t"})


@pytest.mark.parametrize("name", ["s3.role-arn", "s3.signer"])
def test_what_cannot_be_followed_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        location_of("s3://lake/t", {name: "x"})


@pytest.mark.parametrize(
    "url", ["/data/a b#c", "file:/data/a b#c", "file:///data/a b#c", "file://localhost/data/a b#c"]
)
def test_local_files_are_paths_however_they_are_written(url: str) -> None:
    assert location_of(url, S3).path == "/data/a b#c"


def test_the_options_reach_a_server(s3_server: S3Server, s3_bucket: str) -> None:
    properties = {
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": s3_server.access_key,
        "s3.secret-access-key": s3_server.secret_key,
        "s3.region": s3_server.region,
    }
    location = location_of(f"s3a://{s3_bucket}/t/metadata/v1.json", properties)
    create(location, b"{}")
    assert bytes(read_whole(location, 10)) == b"{}"
