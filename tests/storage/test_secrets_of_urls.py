"""No error of storage, its traceback included, shows the user, the password or the query of a URL."""

from __future__ import annotations

import io
import os
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

import ags1
from ags1 import audit, dataset, fs, parquet, storage
from ags1.kms import MemoryKms
from ags1.storage import Location
from tests.checks import KEY
from tests.storage.loopback import served

USER, PASSWORD, SIGNATURE = "someone-known", "PASS-word-of-theirs", "SIGN-ature-of-theirs"
SECRETS = (USER, PASSWORD, SIGNATURE)
OPTIONS = {"timeout": 5, "max_retries": 0, "retry_seconds": 0, "region": "us-east-1", "skip_signature": True}
RESPONSES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "404": (404, {}, b"missing"),
    "403": (403, {}, b"refused"),
    "500": (500, {}, b"broken"),
    "302": (302, {"Location": f"http://other/?sig={SIGNATURE}"}, b""),
    "short": (200, {"Content-Length": "100"}, b"short"),
    "plain": (200, {}, b"not encrypted"),
    "empty": (200, {}, b""),
}


def respond(handler: BaseHTTPRequestHandler) -> None:
    status, headers, body = RESPONSES[handler.path.partition("?")[0].strip("/").partition("/")[0]]
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)
    handler.close_connection = True


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with_server = served(respond)
    with with_server as found:
        yield found


def urls(port: int) -> list[str]:
    user, query = f"{USER}:{PASSWORD}@", f"?sig={SIGNATURE}&x=1"
    answers = [f"http://{user}127.0.0.1:{port}/{name}/file{query}" for name in RESPONSES]
    return [
        *answers,
        f"simplecache::{answers[0]}",
        f"http://{user}127.0.0.1:1/nobody{query}",
        f"https://{user}127.0.0.1:{port}/404{query}",
        f"sftp://{user}127.0.0.1:1/file{query}",
        f"ftp://{user}127.0.0.1:1/file{query}",
        f"unknown://{user}host/file{query}",
        f"unknown::http://{user}host/file{query}",
        f"http:/{user}host/file{query}",
        f"s3://{user}bucket/a",
        f"s3://{user}bucket//a",
        f"gs://{user}bucket//a",
        f"az://{user}",
        f"memory://host/file{query}",
    ]


KMS = MemoryKms({"lake": bytes(32)})


def written(target: Any, commit: bool) -> None:
    with storage.open_output(target) as output:
        output.write(b"x" * 100)
        if commit:
            output.commit()


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "Location": lambda url: print(Location(url, OPTIONS), repr(Location(url)), f"{Location(url)!r:>3}"),
    "fspath": lambda url: os.fspath(Location(url)),
    "status": lambda url: storage.status(Location(url, OPTIONS)),
    "identity": lambda url: storage.identity_of(Location(url, OPTIONS)),
    "source": lambda url: storage.open_source(Location(url, OPTIONS)).read(0, 1 << 20),
    "whole": lambda url: storage.read_whole(Location(url, OPTIONS), 4),
    "list": lambda url: storage.list_files(Location(url, OPTIONS)),
    "iterate": lambda url: list(storage.iterate_files(Location(url, OPTIONS))),
    "sorted": lambda url: storage.SortedListing(Location(url, OPTIONS)),
    "names": lambda url: storage.list_names(Location(url, OPTIONS)),
    "match": lambda url: storage.match(Location(f"{url}/*", OPTIONS)),
    "is_directory": lambda url: storage.is_directory(Location(url, OPTIONS)),
    "create": lambda url: storage.create(Location(url, OPTIONS), b"x"),
    "remove": lambda url: storage.remove([Location(url, OPTIONS), Location(f"{url}x", OPTIONS)]),
    "parent": lambda url: storage.make_parent(Location(url, OPTIONS)),
    "output": lambda url: written(Location(url, OPTIONS), True),
    "given up": lambda url: written(Location(url, OPTIONS), False),
    "encrypt from": lambda url: ags1.encrypt_file(url, io.BytesIO(), KEY, storage_options=OPTIONS),
    "encrypt to": lambda url: ags1.encrypt_file(io.BytesIO(b"x"), url, KEY, storage_options=OPTIONS),
    "encrypt both": lambda url: ags1.encrypt_file(url, url, KEY, storage_options=OPTIONS),
    "decrypt": lambda url: ags1.decrypt_file(url, io.BytesIO(), KEY, storage_options=OPTIONS),
    "verify": lambda url: ags1.verify_file(url, KEY, storage_options=OPTIONS),
    "open": lambda url: ags1.open(url, key=KEY, storage_options=OPTIONS).read(),
    "write": lambda url: ags1.open(url, "wb", key=KEY, storage_options=OPTIONS).close(),
    "dataset from": lambda url: dataset.encrypt(Location(url, OPTIONS), "memory://vault", KMS, "lake"),
    "dataset to": lambda url: dataset.encrypt("memory://plain", Location(url, OPTIONS), KMS, "lake"),
    "dataset": lambda url: dataset.open(Location(url, OPTIONS), KMS),
    "audit": lambda url: print(audit.audit(url, storage_options=OPTIONS)),
    "inspect": lambda url: parquet.inspect(url, storage_options=OPTIONS),
    "fs": lambda url: fs.Ags1FileSystem(key=KEY).open(url).read(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_error_shows_what_a_url_keeps_secret(name: str, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    failed = 0
    for url in urls(port):
        try:
            OPERATIONS[name](url)
        except Exception as error:
            failed += 1
            shown = "".join(traceback.format_exception(error))
            named = [str(getattr(error, each, "")) for each in ("filename", "filename2", "args", "strerror")]
            for secret in SECRETS:
                assert secret not in shown, f"{url}: {shown}"
                assert secret not in " ".join(named), (url, named)
    said = capsys.readouterr()
    assert not any(secret in said.out + said.err for secret in SECRETS)
    assert failed > 1


def test_a_shown_url_names_the_file() -> None:
    for url, shown in (
        ("https://u:p@host/a/b.csv?sig=x", "https://host/a/b.csv?..."),
        ("https://host/a@b.csv", "https://host/a@b.csv"),
        ("simplecache::https://u@host/b?x", "simplecache::https://host/b?..."),
        ("s3://bucket/a?b=c@d", "s3://bucket/a?b=c@d"),
        ("abfss://raw@account.dfs.core.windows.net/a", "abfss://raw@account.dfs.core.windows.net/a"),
        ("what?u:p@host", "what?u:p@host"),
    ):
        assert str(Location(url)) == shown


@pytest.mark.parametrize("secret", ["https://user:PASSWORD@lake.example/t", "https://lake.example/t?sig=PASSWORD"])
def test_a_location_where_a_table_belongs_is_refused_without_its_secret(secret: str) -> None:
    pytest.importorskip("pyiceberg")
    from ags1.iceberg import encrypt_table
    from ags1.kms import MemoryKms

    with pytest.raises(ValueError, match=r"lake\.example.*was opened without a catalog") as caught:
        encrypt_table(secret, kms=MemoryKms({"k": bytes(16)}), key_id="k")
    assert "PASSWORD" not in str(caught.value)
