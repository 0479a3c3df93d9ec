"""A store that refuses, or is not reached, is one line: what is wrong and which setting to look at."""

from __future__ import annotations

import base64
import dataclasses
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ags1.storage import (
    Location,
    as_os_error,
    create,
    list_files,
    list_names,
    open_output,
    open_source,
    read_whole,
    remove,
    status,
)
from tests.servers.azure import AzureServer
from tests.servers.fixtures import needs_credentials
from tests.servers.s3 import S3Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.timeout(120)

AT_ONCE = {"max_retries": 0, "retry_seconds": 5}
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}


def _write(place: Location) -> None:
    with open_output(place) as output:
        output.write(b"data")
        output.commit()


# The first has no body in its response, and is told less.
CALLS: dict[str, Callable[[Location], object]] = {
    "status": lambda place: status(place.join("a")),
    "open": lambda place: open_source(place.join("a")),
    "read": lambda place: read_whole(place.join("a"), 10),
    "list": lambda place: list_files(place),
    "names": lambda place: list_names(place),
    "write": lambda place: _write(place.join("b")),
    "create": lambda place: create(place.join("c"), b"data"),
    "remove": lambda place: remove([place.join("a"), place.join("b")]),
}
EVERY_CALL = pytest.mark.parametrize("call", CALLS)


def refused(call: str, place: Location, *secrets: str) -> tuple[OSError, str]:
    """What a call raises, and its text."""
    with pytest.raises(OSError, match=r"\w") as caught:
        CALLS[call](place)
    error = caught.value
    assert str(error.filename).startswith(place.text)
    return error, readable(error, *secrets)


def is_missing(call: str, place: Location, expected: str) -> None:
    """Check what a call says of a bucket or container that is not there."""
    if call == "remove":
        # What is not there need not be removed.
        CALLS[call](place)
        return
    error, text = refused(call, place)
    assert isinstance(error, FileNotFoundError)
    assert text == ("No such file or directory" if call == "status" else expected)


def readable(error: OSError, *secrets: str) -> str:
    """The text of an error: one line without XML, Rust or a secret."""
    assert error.strerror
    assert len(error.strerror) < 300
    for each in ("\n", "<", "{", "Generic", "non-2xx", *secrets):
        assert each not in str(error)
    return error.strerror


def s3(server: S3Server, bucket: str, **options: Any) -> Location:
    return Location(f"s3://{bucket}/raw", {**server.storage_options(), **AT_ONCE, **options})


@EVERY_CALL
def test_a_bucket_that_is_not_there_is_named(call: str, s3_server: S3Server) -> None:
    is_missing(call, s3(s3_server, "no-such-lake"), "no such bucket no-such-lake")


@pytest.mark.parametrize(
    ("change", "code"),
    [({"secret_key": "of-somebody-else"}, "SignatureDoesNotMatch"), ({"access_key": "nobody"}, "InvalidAccessKeyId")],
)
@EVERY_CALL
def test_wrong_credentials_of_s3_say_where_they_come_from(
    call: str, change: dict[str, str], code: str, s3_server: S3Server, s3_bucket: str
) -> None:
    needs_credentials(s3_server)
    error, text = refused(call, s3(dataclasses.replace(s3_server, **change), s3_bucket), *change.values())
    assert isinstance(error, PermissionError)
    said = "403 Forbidden" if call == "status" else code
    assert text.startswith(f"access refused ({said}): check {CREDENTIALS['s3']}")


@EVERY_CALL
def test_what_credentials_may_not_do_is_access_refused(call: str, s3_server: S3Server, s3_bucket: str) -> None:
    needs_credentials(s3_server)
    error, text = refused(call, s3(s3_server, s3_bucket, anon=True, key=None, secret=None))
    assert isinstance(error, PermissionError)
    said = "403 Forbidden" if call == "status" else "AccessDenied"
    assert text.startswith(f"access refused ({said}): ")
    assert CREDENTIALS["s3"] in text


@pytest.fixture(scope="module")
def elsewhere(s3_server: S3Server) -> Iterator[S3Server]:
    """A server of another region than the clients sign for."""
    needs_credentials(s3_server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINIO_SITE_REGION", "eu-west-9")
        with S3Server.start() as server:
            dataclasses.replace(server, region="eu-west-9").make_bucket("lake")
            yield server


@EVERY_CALL
def test_a_bucket_of_another_region_says_which(call: str, elsewhere: S3Server) -> None:
    error, text = refused(call, s3(elsewhere, "lake"))
    if call == "status":
        assert "wrong region or an expired token" in text
        return
    assert isinstance(error, PermissionError)
    assert text.startswith("the bucket is in another region: set AWS_REGION to eu-west-9")


@pytest.mark.parametrize(
    ("endpoint", "number", "reason"),
    [
        ("http://127.0.0.1:1", errno.ECONNREFUSED, "connection refused"),
        ("http://no-such-host.invalid:9000", errno.EIO, "the host name is not known"),
    ],
)
@EVERY_CALL
def test_an_endpoint_that_is_not_reached_is_named(call: str, endpoint: str, number: int, reason: str) -> None:
    options = {"key": "user", "secret": "not-to-be-told", "endpoint_url": endpoint, "region": "us-east-1"}
    error, text = refused(call, Location("s3://lake/raw", {**options, **AT_ONCE}), "not-to-be-told")
    assert error.errno == number
    said = f"{endpoint} cannot be reached: {reason}; check AWS_ENDPOINT_URL and AWS_REGION"
    assert text.startswith(said)


def test_https_to_a_server_without_tls_is_said_to_be_that(s3_server: S3Server) -> None:
    endpoint = s3_server.endpoint.replace("http:", "https:")
    _, text = refused("list", s3(s3_server.through(endpoint), "lake"))
    assert text.startswith(f"{endpoint} cannot be reached: it does not use TLS")


def azure(server: AzureServer, container: str, **options: Any) -> Location:
    account = {"account_name": server.account, "account_key": server.key, "endpoint": server.endpoint}
    return Location(f"az://{container}/raw", {**account, "allow_http": True, **AT_ONCE, **options})


@EVERY_CALL
def test_a_container_that_is_not_there_is_named(call: str, azure_server: AzureServer) -> None:
    is_missing(call, azure(azure_server, "no-such-lake"), "no such container no-such-lake")


@EVERY_CALL
def test_a_wrong_account_key_says_where_it_comes_from(call: str, azure_server: AzureServer) -> None:
    key = base64.b64encode(b"of somebody else").decode()
    error, text = refused(call, azure(azure_server, azure_server.make_bucket("refusals"), account_key=key), key)
    assert isinstance(error, PermissionError)
    assert text.startswith("access refused (")
    assert f"check {CREDENTIALS['az']}" in text


def test_azure_without_an_account_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    error, text = refused("list", Location("az://lake/raw", AT_ONCE))
    assert isinstance(error, PermissionError)
    assert text.startswith("no credentials were found: set ")
    assert CREDENTIALS["az"] in text


def test_http_that_was_not_allowed_names_the_option(azure_server: AzureServer) -> None:
    _, text = refused("list", azure(azure_server, "lake", allow_http=False))
    assert "http:// needs the option allow_http" in text


def test_an_unknown_option_is_a_wrong_argument() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        list_files(Location("s3://lake/raw", {"nonsense": 1}))


@pytest.mark.parametrize(
    "arguments",
    [
        ["dataset", "encrypt", "s3://no-such-lake/raw", "s3://{bucket}/vault"],
        ["dataset", "encrypt", "{raw}", "s3://no-such-lake/vault"],
        ["dataset", "ls", "s3://no-such-lake/vault"],
        ["audit", "s3://no-such-lake/"],
        ["audit", "s3://no-such-lake/vault"],
        ["iceberg", "inspect", "s3://no-such-lake/table"],
    ],
    ids=" ".join,
)
def test_a_command_on_a_bucket_that_is_not_there_names_it(
    arguments: list[str], s3_server: S3Server, s3_bucket: str, tmp_path: Any
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a").write_bytes(b"data")
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "key").chmod(0o600)
    kms = ["--kms", f"local:{tmp_path}/keys", "--key-file", f"{tmp_path}/key"]
    run: dict[str, Any] = {
        "env": {**os.environ, **s3_server.environment()},
        "capture_output": True,
        "text": True,
        "check": False,
    }
    ags1 = [sys.executable, "-m", "ags1"]
    subprocess.run([*ags1, "kms", "init", *kms, "--key-id", "lake"], **run)
    arguments = [each.format(bucket=s3_bucket, raw=raw) for each in arguments]
    if arguments[0] == "dataset":
        arguments += [*kms, *(["--key-id", "lake"] if arguments[1] == "encrypt" else [])]
    done = subprocess.run([*ags1, *arguments], **run)
    assert done.returncode == 4, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("ags1: s3://no-such-lake")
    assert line.endswith("no such bucket no-such-lake")


# -- what no server of the tests says, in the words of obstore 0.12 ------------------------------------------------


class GenericError(Exception):
    """obstore's, in what the mapping looks at."""


GenericError.__module__ = "obstore.exceptions"


def _responded(status: str, body: str, request: str = "GET https://host/lake?list-type=2&prefix=a%2F") -> str:
    text = f"Error performing {request} in 1.2ms - Server returned non-2xx status code: {status}: {body}"
    return f"Generic store error: Error performing list request: {text}\n\nDebug source:\nGeneric {{ body: {body!r} }}"


def _xml(code: str, message: str = "m") -> str:
    secret = "<AWSAccessKeyId>AKIA</AWSAccessKeyId><StringToSign>hush</StringToSign>"
    return f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{secret}</Error>'


REDIRECTED = (
    "Generic S3 error: Error performing GET https://host/lake in 1.2ms - Received redirect without LOCATION, this "
    "normally indicates an incorrectly configured region\n\nDebug source:\nGeneric { inner: BareRedirect }"
)
TOKEN = "POST https://oauth2.googleapis.com/token"


@pytest.mark.parametrize(
    ("scheme", "said", "number", "expected"),
    [
        ("s3", REDIRECTED, errno.EACCES, "the bucket is in another region: set AWS_REGION"),
        (
            "s3",
            _responded("400 Bad Request", _xml("ExpiredToken")),
            errno.EACCES,
            "access refused (ExpiredToken): check",
        ),
        ("s3", _responded("403 Forbidden", _xml("AccessDenied")), errno.EACCES, "access refused (AccessDenied): "),
        (
            "s3",
            _responded("503 Service Unavailable", _xml("SlowDown", "Reduce your request rate.")),
            errno.EIO,
            "the store returned 503 Service Unavailable (SlowDown): Reduce your request rate.",
        ),
        ("s3", _responded("504 Gateway Timeout", "<html>x</html>"), errno.ETIMEDOUT, "the store returned 504 Gateway"),
        ("gs", _responded("404 Not Found", _xml("NoSuchBucket")), errno.ENOENT, "no such bucket lake"),
        ("gs", _responded("403 Forbidden", _xml("AccessDenied")), errno.EACCES, "access refused (AccessDenied): "),
        ("gs", _responded("401 Unauthorized", '{"error": {"code": 401}}'), errno.EACCES, "access refused (401 Unauth"),
        (
            "gs",
            _responded("400 Bad Request", '{"error":"invalid_grant","error_description":"hush"}', TOKEN),
            errno.EACCES,
            f"access refused (invalid_grant): check {CREDENTIALS['gs']}",
        ),
        (
            "az",
            _responded("403 Forbidden", _xml("AuthorizationPermissionMismatch")),
            errno.EACCES,
            "access refused (AuthorizationPermissionMismatch): ",
        ),
    ],
)
def test_what_a_store_says_is_an_oserror_that_a_person_understands(
    scheme: str, said: str, number: int, expected: str
) -> None:
    error = as_os_error(GenericError(said), f"{scheme}://lake/raw")
    assert error is not None
    assert type(error) is type(OSError(number, ""))
    assert error.errno == number
    assert readable(error, "AKIA", "hush", "prefix=").startswith(expected)
