"""Faults of networks and services: one line that names the object and exit code 4, an OSError in Python."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import dataset, parquet
from ags1.cli import main
from ags1.kms import LocalKms
from ags1.storage import Location, as_os_error, file_system_of, guarded
from tests.checks import KEY, pattern
from tests.hostile import FAULTS, HostileProxy, HostileServer

pytest.importorskip("aiohttp")
pytestmark = pytest.mark.timeout(120)

PLAIN = pattern(300_000)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server has, the key for it, and a keystore."""
    root = tmp_path_factory.mktemp("lake")
    (root / "key").write_bytes(KEY)
    (root / "key").chmod(0o600)
    (root / "www").mkdir()
    (root / "www" / "a.ags1").write_bytes(ags1.encrypt(PLAIN, KEY))
    plain = root / "plain.parquet"
    pq.write_table(pa.table({"a": list(range(20_000)), "b": [f"text {n}" for n in range(20_000)]}), plain)
    parquet.encrypt_file(plain, root / "www" / "p.parquet", parquet.EncryptionConfig(KEY))
    client = LocalKms.create(root / "keys", {"lake": KEY}, key_file=root / "key")
    (root / "raw").mkdir()
    (root / "raw" / "a").write_bytes(PLAIN)
    dataset.encrypt(root / "raw", root / "www" / "vault", client, "lake").close()
    return root


@pytest.fixture
def server(lake: Path) -> Iterator[HostileServer]:
    www = lake / "www"
    objects = {f"/{path.relative_to(www)}": path.read_bytes() for path in www.rglob("*") if path.is_file()}
    with HostileServer(objects) as made:
        yield made


def commands(lake: Path, root: str) -> dict[str, tuple[list[str], str]]:
    """Commands that read an object, and its name."""
    key = ["--key-file", str(lake / "key")]
    read = [*key, "--length", str(ags1.encrypted_length(len(PLAIN)))]
    kms = ["--kms", f"local:{lake / 'keys'}", "--key-file", str(lake / "key")]
    footer = ["--footer-key", f"file:{lake / 'key'}"]
    # The server lists nothing, so the version is named.
    kms += ["--version", "1"]
    return {
        "cat": (["cat", f"{root}/a.ags1", *read], "a.ags1"),
        "inspect": (["inspect", f"{root}/a.ags1"], "a.ags1"),
        "verify": (["verify", f"{root}/a.ags1", *read], "a.ags1"),
        "decrypt": (["decrypt", f"{root}/a.ags1", str(lake / "out"), "--overwrite", *read], "a.ags1"),
        "encrypt": (["encrypt", f"{root}/a.ags1", str(lake / "out"), "--again", "--overwrite", *key], "a.ags1"),
        "parquet inspect": (["parquet", "inspect", f"{root}/p.parquet", *footer], "p.parquet"),
        "parquet cat": (["parquet", "cat", f"{root}/p.parquet", *footer], "p.parquet"),
        "parquet head": (["parquet", "head", f"{root}/p.parquet", *footer], "p.parquet"),
        "parquet verify": (["parquet", "verify", f"{root}/p.parquet", *footer], "p.parquet"),
        "dataset ls": (["dataset", "ls", f"{root}/vault", *kms], "vault"),
        "dataset cat": (["dataset", "cat", f"{root}/vault", "a", *kms], "vault"),
        "dataset verify": (["dataset", "verify", f"{root}/vault", *kms], "vault"),
        "dataset decrypt": (["dataset", "decrypt", f"{root}/vault", str(lake / "tree"), *kms], "vault"),
    }


COMMANDS = tuple(commands(Path(), ""))


def assert_one_line(said: str, name: str) -> None:
    lines = [line for line in said.splitlines() if line and not line.startswith("ags1: warning")]
    assert len(lines) == 1, said
    assert name in lines[0]
    assert "authentic" not in lines[0]
    assert "Traceback" not in said


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_network_fault_is_one_line_and_exit_4(
    command: str, fault: str, server: HostileServer, lake: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.fault = fault
    arguments, name = commands(lake, server.url)[command]
    code = main(arguments)
    said = capfd.readouterr().err
    assert code == 4, said
    assert_one_line(said, name)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_commands_work_without_a_fault(
    command: str, server: HostileServer, lake: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, _ = commands(lake, server.url)[command]
    # Not every HTTP server lists directories, which verify needs to find what does not belong.
    if command != "dataset verify":
        assert main(arguments) == 0, capfd.readouterr().err


@pytest.mark.parametrize("command", ["cat", "inspect", "verify", "parquet cat", "parquet inspect"])
@pytest.mark.parametrize(
    ("fault", "text"),
    [("no length", "does not return its length"), ("no range", "the server ignores the range of a request")],
)
def test_a_server_that_tells_no_length_or_ignores_ranges_is_said_to_be_that(
    fault: str, text: str, command: str, server: HostileServer, lake: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.fault = fault
    arguments, name = commands(lake, server.url)[command]
    assert main(arguments) == 4
    said = capfd.readouterr().err
    assert_one_line(said, name)
    assert text in said


def python_calls(root: str) -> dict[str, Callable[[], object]]:
    config = parquet.DecryptionConfig(KEY)
    return {
        "open": lambda: ags1.open(f"{root}/a.ags1", key=KEY).read(),
        "Reader of fsspec's file": lambda: ags1.Reader(_fsspec_file(f"{root}/a.ags1"), KEY).read(),
        "decrypt_file": lambda: ags1.decrypt_file(f"{root}/a.ags1", io.BytesIO(), KEY),
        "encrypt_file": lambda: ags1.encrypt_file(f"{root}/a.ags1", io.BytesIO(), KEY),
        "parquet.read_table": lambda: parquet.read_table(f"{root}/p.parquet", config),
        "parquet.decrypt_file": lambda: parquet.decrypt_file(f"{root}/p.parquet", io.BytesIO(), config),
        "parquet.verify_file": lambda: parquet.verify_file(f"{root}/p.parquet", config),
    }


def _fsspec_file(url: str) -> Any:
    import fsspec

    return fsspec.open(url, "rb").open()


@pytest.mark.parametrize("call", python_calls(""))
@pytest.mark.parametrize("fault", FAULTS)
def test_in_python_it_is_an_oserror_with_a_file_name(call: str, fault: str, server: HostileServer) -> None:
    server.fault = fault
    with pytest.raises(OSError, match=r"\w") as caught:
        python_calls(server.url)[call]()
    assert not isinstance(caught.value, ags1.Ags1Error)
    assert caught.value.errno
    assert str(caught.value.filename).startswith(server.url)


def test_an_object_that_is_not_there_is_a_missing_file(server: HostileServer) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory") as caught:
        ags1.open(f"{server.url}/nowhere", key=KEY)
    assert caught.value.filename == f"{server.url}/nowhere"


# -- S3 ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moto() -> Iterator[int]:
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def proxy(moto: int, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileProxy]:
    s3fs = pytest.importorskip("s3fs")
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    with HostileProxy(moto) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        s3fs.S3FileSystem.clear_instance_cache()
        store = s3fs.S3FileSystem()
        store.mkdirs("lake", exist_ok=True)
        www = lake / "www"
        for path in www.rglob("*"):
            if path.is_file():
                store.pipe_file(f"lake/{path.relative_to(www)}", path.read_bytes())
        store.invalidate_cache()
        yield made
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("cat", "reset"),
        ("cat", "hang up"),
        ("inspect", "cut"),
        ("parquet cat", "reset"),
        ("parquet head", "cut"),
        ("dataset ls", "hang up"),
        ("dataset verify", "cut"),
        ("dataset decrypt", "reset"),
    ],
)
def test_a_fault_on_the_way_to_s3_is_one_line_and_exit_4(
    command: str, fault: str, proxy: HostileProxy, lake: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    proxy.fault = fault
    # Headers alone may be shorter, and the answers to inspect are.
    proxy.spared = 100
    arguments, name = commands(lake, "s3://lake")[command]
    code = main(arguments)
    said = capfd.readouterr().err
    assert code == 4, said
    assert_one_line(said, name)


def test_commands_on_s3_work_without_a_fault(
    proxy: HostileProxy, lake: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for arguments, _ in commands(lake, "s3://lake").values():
        assert main(arguments) == 0, capfd.readouterr().err


# -- the mapping ---------------------------------------------------------------------------------------------------


def faults() -> list[tuple[BaseException, int]]:
    import aiohttp
    import requests
    import urllib3
    from botocore import exceptions as boto

    reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    chained = aiohttp.ClientPayloadError("Response payload is not completed")
    chained.__cause__ = reset
    forbidden = {"Error": {"Code": "403"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    return [
        (aiohttp.ClientPayloadError("Response payload is not completed"), errno.EIO),
        (chained, errno.ECONNRESET),
        (aiohttp.ServerDisconnectedError(), errno.EIO),
        (boto.EndpointConnectionError(endpoint_url="x"), errno.EIO),
        (boto.ClientError(forbidden, "GetObject"), errno.EACCES),  # type: ignore[arg-type]
        (boto.NoCredentialsError(), errno.EIO),
        (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), errno.EIO),
        (requests.ConnectionError(reset), errno.ECONNRESET),
        (requests.exceptions.ChunkedEncodingError("cut"), errno.EIO),
        (urllib3.exceptions.ProtocolError("Connection aborted.", reset), errno.ECONNRESET),
        (urllib3.exceptions.ReadTimeoutError(None, "u", "slow"), errno.EIO),  # type: ignore[arg-type]
        (TimeoutError(), errno.ETIMEDOUT),
        (FileNotFoundError("bucket/key"), errno.ENOENT),
        (FileExistsError("bucket/key"), errno.EEXIST),
        (PermissionError("Forbidden"), errno.EACCES),
        (reset, errno.ECONNRESET),
    ]


@pytest.mark.parametrize("number", range(len(faults())))
def test_faults_of_every_client_are_oserrors(number: int) -> None:
    error, expected = faults()[number]
    found = as_os_error(error, "s3://lake/a")
    assert found is not None
    assert (found.errno, found.filename) == (expected, "s3://lake/a")
    assert found.strerror
    assert type(found) is type(OSError(expected, ""))
    assert "\n" not in str(found)


@pytest.mark.parametrize("error", [ValueError("x"), ags1.FormatError("x"), KeyError("x"), TypeError("x")])
def test_what_is_no_fault_of_a_network_is_left_alone(error: Exception) -> None:
    assert as_os_error(error, "s3://lake/a") is None


def test_a_store_without_credentials_says_what_to_set() -> None:
    error = OSError("Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token: timed out")
    found = as_os_error(error, "s3://lake/a")
    assert found is not None
    assert "no credentials were found: set " in found.strerror


def test_an_oserror_that_says_everything_stays_as_it_is() -> None:
    error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/a")
    assert as_os_error(error, "/b") is error


def test_a_file_system_behind_the_door_is_the_same_otherwise() -> None:
    file_system, path = file_system_of(Location("memory://remote/a"))
    file_system.pipe_file(path, b"data")
    assert file_system.size(path) == 4
    assert guarded(file_system) is file_system
    assert file_system == file_system_of(Location("memory://remote/b"))[0]
    with file_system.open(path, "rb") as file:
        assert re.fullmatch(b"data", file.read())
    with pytest.raises(AttributeError):
        file_system.no_such_method  # noqa: B018


def test_no_secret_of_a_url_stands_in_the_error_that_names_it() -> None:
    error = ConnectionError("no route to https://me:GEHEIM@host/a?sig=GEHEIM")
    found = as_os_error(error, "https://me:GEHEIM@host/a?X-Amz-Signature=GEHEIM")
    assert found is not None
    assert "GEHEIM" not in str(found)
