"""PyIceberg's properties as storage options: they reach the store, or are refused by name."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ags1.iceberg import create_table, load_table, open_table, relocate_table
from ags1.iceberg.catalogs import CatalogTable, catalog_table
from ags1.iceberg.metadata.locations import check_catalog_properties, io_properties_of, location_of, storage_options_of
from ags1.kms import MemoryKms
from ags1.storage import create, read_whole
from tests.iceberg.catalog_cases import create_in, fields_of
from tests.servers.s3 import S3Server

S3 = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.region": "us-west-2"}


@pytest.mark.parametrize(
    ("properties", "url", "expected"),
    [
        (S3, "s3://b/k", {"access_key_id": "a", "secret_access_key": "b", "region": "us-west-2"}),
        ({"client.region": "eu-west-1", "uri": "http://x"}, "s3://b/k", {"region": "eu-west-1"}),
        ({"client.region": "eu-west-1", "s3.region": "us-west-2"}, "s3://b/k", {"region": "us-west-2"}),
        ({**S3, "gcs.oauth2.token": "t"}, "gs://b/k", {"bearer_token": "t"}),
        ({"adls.account-name": "n", "adls.account-key": "k"}, "az://box/k", {"account_name": "n", "account_key": "k"}),
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
        ({}, "s3://b/k", {}),
    ],
)
def test_properties_become_the_options_of_their_store(
    properties: dict[str, str], url: str, expected: dict[str, Any]
) -> None:
    assert storage_options_of(properties, url) == expected


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


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_what_the_environment_says_of_a_store_is_enough(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    said = s3_server.environment()
    for name in said:
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", variable):
        monkeypatch.setenv(name, said[name])
    where, kms, rows = f"s3://{s3_bucket}/t", MemoryKms({"lake": bytes(16)}), pa.table({"id": [1, 2]})
    create_table(None, where, rows.schema, kms=kms, key_id="lake").append(rows)
    table = load_table(None, where, kms=kms)
    assert table.scan().to_arrow().to_pydict() == {"id": [1, 2]}
    assert table.verify().ok
    # What is given counts.
    given = storage_options_of({"s3.endpoint": "http://other", "client.region": "eu-west-1"}, where)
    assert (given["endpoint"], given["region"]) == ("http://other", "eu-west-1")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"endpoint": "http://h", "aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "r"},
            {"s3.endpoint": "http://h", "s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.region": "r"},
        ),
        (
            {"endpoint_url": "http://h", "key": "a", "secret": "b", "anon": False},
            {
                "s3.endpoint": "http://h",
                "s3.access-key-id": "a",
                "s3.secret-access-key": "b",
                "s3.anonymous": "false",
                "adls.anon": "false",
                "gcs.service.host": "http://h",
            },
        ),
        (
            {"fs.s3a.endpoint": "h:9000", "fs.s3a.connection.ssl.enabled": "false", "fs.s3a.path.style.access": "true"},
            {"s3.endpoint": "http://h:9000", "s3.force-virtual-addressing": "false"},
        ),
        (
            {"fs.s3a.endpoint": "h", "timeout": 5, "region": None},
            {"s3.endpoint": "https://h", "s3.request-timeout": "5"},
        ),
        ({"azure_storage_account_key": "k", "account_name": "n"}, {"adls.account-key": "k", "adls.account-name": "n"}),
        ({"bearer_token": "t"}, {"gcs.oauth2.token": "t", "adls.token": "t"}),
        (
            {**S3, "adls.sas-token.n.dfs.core.windows.net": "s", "ags1.kms": "aws:"},
            {**S3, "adls.sas-token.n.dfs.core.windows.net": "s", "ags1.kms": "aws:"},
        ),
        ({"py-io-impl": "my.IO", "my.option": 1}, {"py-io-impl": "my.IO", "my.option": "1"}),
        (None, {}),
    ],
)
def test_storage_options_have_either_name(options: dict[str, Any] | None, expected: dict[str, str]) -> None:
    assert io_properties_of(options) == expected
    assert io_properties_of(io_properties_of(options)) == expected


def test_what_spark_says_of_a_storage_is_told_to_pyiceberg() -> None:
    settings = {"endpoint": "minio:9000", "connection.ssl.enabled": "false", "endpoint.region": "eu-west-1"}
    settings |= {"access.key": "AKIA", "secret.key": "hidden", "session.token": "passing"}
    settings |= {"aws.credentials.provider": "com.example.Own"}
    options = {f"fs.s3a.{name}": value for name, value in settings.items()}
    assert io_properties_of(options, strict=False) == {
        "s3.endpoint": "http://minio:9000",
        "s3.region": "eu-west-1",
        "s3.access-key-id": "AKIA",
        "s3.secret-access-key": "hidden",
        "s3.session-token": "passing",
    }


@pytest.mark.parametrize(
    ("name", "like"), [("s3.endpont", "s3.endpoint"), ("endpont", "endpoint"), ("max_retries", "s3.endpoint")]
)
def test_an_option_that_would_have_no_effect_is_refused_by_name(name: str, like: str, tmp_path: Path) -> None:
    options = {name: "secret"}
    for call in (
        lambda: load_table(None, str(tmp_path), kms=None, properties=options),
        lambda: open_table(f"{tmp_path}/v1.metadata.json", None, properties=options),
        lambda: create_in(None, str(tmp_path), {}, storage_options=options),
        lambda: catalog_table(None, str(tmp_path), storage_options=options),
        lambda: relocate_table(_state(tmp_path), f"{tmp_path}/u", kms=MemoryKms({}), target_properties=options),
    ):
        with pytest.raises(ValueError, match=f"{name}.*such as '{like}'") as raised:
            call()
        assert "secret" not in str(raised.value)


def _state(directory: Path) -> CatalogTable:
    return create_in(None, str(directory / "t"), fields_of(str(directory / "t")))


# Read of a table, or values that are no text.
NOT_OF_A_COMMAND_LINE = {"auth", "botocore_session", "format-version", "metadata_location", "ssl"} | {
    "write.metadata.delete-after-commit.enabled"
}


def properties_that_are_read(module: str) -> Iterator[str]:
    """The names of properties that stand in the source of one of PyIceberg's modules."""
    found = importlib.import_module(module)
    for node in ast.walk(ast.parse(inspect.getsource(found))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        names = node.args[1:] if called == "get_first_property_value" else []
        if called.endswith("properties.get"):
            names = node.args[:1]
        elif called.startswith("property_as_"):
            names = node.args[1:2]
        for each in names:
            if ast.unparse(each) != "param":
                yield eval(ast.unparse(each), vars(found))


@pytest.mark.parametrize("kind", ["sql", "hive", "glue", "rest"])
def test_every_property_that_a_catalog_reads_is_taken(kind: str) -> None:
    names = set(properties_that_are_read(f"pyiceberg.catalog.{kind}")) - NOT_OF_A_COMMAND_LINE
    assert len(names) > 4
    check_catalog_properties(dict.fromkeys(names, "x"))
    check_catalog_properties({"header.x-tenant": "a", "audience": "b", "resource": "c", "type": kind, "uri": "x"})


def test_a_catalog_or_a_file_io_of_somebody_elses_may_have_any_property() -> None:
    check_catalog_properties({"py-catalog-impl": "mine.Catalog", "of-mine": "x"})
    check_catalog_properties({"py-io-impl": "mine.FileIO", "of-mine": "x"})
    with pytest.raises(ValueError, match="'of-mine' would have no effect"):
        check_catalog_properties({"type": "sql", "of-mine": "x"})
