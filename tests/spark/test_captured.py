"""What a data source knows of its session: settings in clear, secrets sealed or not at all."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from ags1 import dataset
from ags1.errors import KeyAccessError
from ags1.spark.engine.captured import CapturedSession, capture
from ags1.spark.engine.locations import locate
from ags1.spark.source.options import SourceOptions
from ags1.spark.source.writer import writer_for
from tests.checks import leaks

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server

SECRETS = {
    "spark.hadoop.fs.s3a.access.key": "AKIAWRONGPREFIX",
    "fs.s3a.access.key": "AKIAOFTHESESSION",
    "spark.hadoop.fs.s3a.secret.key": "wJalr/XUtnFEMI/K7MDENG",
    "fs.s3a.bucket.other.one.secret.key": "bPxRfiCYEXAMPLEKEY",
    "fs.azure.account.key.lake.dfs.core.windows.net": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsu",
}
OPEN = {
    "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9",
    "fs.s3a.endpoint.region": "eu-central-1",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.sql.sources.partitionOverwriteMode": "DYNAMIC",
    "spark.app.name": "of no interest",
}


def session(settings: dict[str, str]) -> Any:
    conf = SimpleNamespace(getAll=settings, get=settings.__getitem__)
    return SimpleNamespace(conf=conf)


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def leaked(*objects: Any) -> list[str]:
    """The secrets in what travels of some objects, and in what they show."""
    places = {"pickle": pickle.dumps(objects), "repr": repr(objects).encode()}
    return leaks(places, {name: value.encode() for name, value in SECRETS.items()})


def test_secrets_are_sealed_and_settings_are_as_they_were(kms_url: str) -> None:
    found = capture(session({**SECRETS, **OPEN}), kms_url, "lake")
    options = SourceOptions.parse({"path": "s3a://bucket/vault", "kms": kms_url}, found)
    assert leaked(found, options) == []
    copy = pickle.loads(pickle.dumps(options)).session
    assert locate("s3a://bucket/vault", copy).storage_options == {
        "fs.s3a.endpoint": "http://127.0.0.1:9",
        "fs.s3a.endpoint.region": "eu-central-1",
        "fs.s3a.access.key": "AKIAOFTHESESSION",
        "fs.s3a.secret.key": "wJalr/XUtnFEMI/K7MDENG",
    }
    other = locate("s3a://other.one/vault", copy).storage_options
    assert other["fs.s3a.secret.key"] == "bPxRfiCYEXAMPLEKEY"
    azure = locate("abfss://container@lake.dfs.core.windows.net/x", copy).storage_options
    assert azure == {"account_key": SECRETS["fs.azure.account.key.lake.dfs.core.windows.net"]}
    assert copy == found
    assert hash(copy) == hash(found)


def test_without_a_kms_a_read_that_needs_a_secret_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = capture(session({**SECRETS, **OPEN}))
    assert leaked(found) == []
    with pytest.raises(PermissionError, match=r"fs.s3a.access.key.*register\(spark, kms=URL") as caught:
        locate("s3a://bucket/vault", found)
    assert "AKIA" not in str(caught.value)
    with pytest.raises(PermissionError, match=r"fs\.azure\.account\.key"):
        locate("abfss://container@lake.dfs.core.windows.net/x", found)
    assert locate("/a", found).is_local
    # What another store's sessions have does not matter.
    assert locate("abfss://container@elsewhere.dfs.core.windows.net/x", found).storage_options == {}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT")
    assert locate("s3a://bucket/vault", found).storage_options == {
        "fs.s3a.endpoint": "http://127.0.0.1:9",
        "fs.s3a.endpoint.region": "eu-central-1",
    }
    assert "AWS_ACCESS_KEY_ID names the credentials that are used here" in caplog.text


def test_what_was_sealed_cannot_be_changed_or_opened_by_another_key(kms_url: str) -> None:
    found = capture(session({**SECRETS, **OPEN}), kms_url, "lake")
    changed = bytearray(found.sealed)
    changed[-1] ^= 1
    with pytest.raises(Exception, match="changed on its way"):
        replace(found, sealed=bytes(changed)).get("fs.s3a.secret.key")
    with pytest.raises(KeyAccessError):
        capture(session(SECRETS), kms_url, "no-such-key")
    for wrong in ({"kms": kms_url}, {"key_id": "lake"}):
        with pytest.raises(ValueError, match="give kms and key_id together"):
            capture(session(SECRETS), **wrong)


def test_a_session_without_secrets_needs_no_kms() -> None:
    found = capture(session(OPEN))
    assert locate("s3a://bucket/x", found).storage_options == {
        "fs.s3a.endpoint": "http://127.0.0.1:9",
        "fs.s3a.endpoint.region": "eu-central-1",
    }
    assert capture(SimpleNamespace()) == CapturedSession()


def test_a_writer_and_its_messages_have_no_credentials_of_the_session(
    s3_server: S3Server, s3_bucket: str, kms_url: str
) -> None:
    there = s3_server.environment()
    secrets = {"access.key": there["AWS_ACCESS_KEY_ID"], "secret.key": there["AWS_SECRET_ACCESS_KEY"]}
    settings = {**secrets, "endpoint": there["AWS_ENDPOINT_URL"], "connection.ssl.enabled": "false"}
    found = capture(
        session({f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}), kms_url, "lake"
    )
    options = {"path": f"s3a://{s3_bucket}/vault", "kms": kms_url, "key_id": "lake", "decode": "parquet"}
    writer = writer_for(options, StructType([StructField("id", LongType())]), False, found)
    copy = pickle.loads(pickle.dumps(writer))
    message = copy.write(iter([pa.RecordBatch.from_pydict({"id": [1, 2]})]))
    writer.commit([message])
    again = writer_for({**options, "key_id": ""}, StructType([StructField("id", LongType())]), False, found)
    again.abort([again.write(iter([pa.RecordBatch.from_pydict({"id": [3]})]))])
    places = {"pickle": pickle.dumps((writer, message, again))}
    assert leaks(places, {name: value.encode() for name, value in secrets.items()}) == []
    with dataset.open(f"s3://{s3_bucket}/vault", kms_url, storage_options=s3_server.storage_options()) as opened:
        assert len(list(opened.files)) == 1
