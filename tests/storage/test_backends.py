"""Every backend keeps the same promises: local files, S3, GCS, Azure, HDFS over WebHDFS, and fsspec's memory."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.storage import (
    Location,
    is_directory,
    iterate_files,
    list_files,
    make_parent,
    open_output,
    open_source,
    remove,
    status,
)
from tests.checks import KEY

MIB = 1 << 20
BACKENDS = ("local", "s3", "gcs", "azure", "hdfs", "memory")
_numbers = itertools.count()


def _place(kind: str, request: pytest.FixtureRequest) -> Location:
    name = f"lake-{os.getpid()}-{next(_numbers)}"
    if kind == "local":
        directory: Path = request.getfixturevalue("tmp_path")
        return Location(directory)
    if kind == "memory":
        return Location(f"memory://{name}")
    server = request.getfixturevalue({"s3": "s3_server"}.get(kind, f"{kind}_server"))
    if kind == "hdfs":
        return Location(f"webhdfs:///{name}", server.storage_options())
    server.make_bucket(name)
    if kind == "s3":
        return Location(f"s3://{name}", server.storage_options())
    if kind == "gcs":
        account = {"gcs_base_url": server.endpoint, "disable_oauth": True}
        account.update(client_email="", private_key="", private_key_id="")
        return Location(f"gs://{name}", {"service_account_key": json.dumps(account), "allow_http": True})
    options = {"account_name": server.account, "account_key": server.key, "endpoint": server.endpoint}
    return Location(f"az://{name}", {**options, "allow_http": True})


# One test each, so that the tests of a server stay in the process that has it.
def check(place: Location) -> None:
    """Put a backend through everything that the room promises of it."""
    _files(place)
    _publication(place)
    _streams(place)


def _files(place: Location) -> None:
    chooser = random.Random(str(place))
    contents = {
        "a.bin": b"",
        "b/c d.bin": b"x",
        "b/e=1/ü.bin": chooser.randbytes(70_000),
        "large.bin": chooser.randbytes(18 * MIB + 3),
    }
    for name, data in contents.items():
        make_parent(place.join(name))
        with open_output(place.join(name), expected=len(data)) as output:
            for begin in range(0, len(data), 5 * MIB):
                output.write(data[begin : begin + 5 * MIB])
            output.commit()
    assert {entry.name: entry.size for entry in list_files(place)} == {
        name: len(data) for name, data in contents.items()
    }
    for name, data in contents.items():
        assert status(place.join(name)).size == len(data)
        source: Any = open_source(place.join(name))
        assert source.size == len(data)
        for _ in range(5):
            begin = chooser.randint(0, len(data))
            size = chooser.randint(0, len(data) - begin)
            assert bytes(memoryview(source.read(begin, size))) == data[begin : begin + size]
        source.close()
    assert is_directory(place.join("b"))
    assert not is_directory(place.join("nothing"))
    remove([place.join("a.bin"), place.join("b/c d.bin"), place.join("nothing.bin")])
    assert [entry.name for entry in list_files(place)] == ["b/e=1/ü.bin", "large.bin"]
    assert sorted(entry.name for entry in iterate_files(place)) == ["b/e=1/ü.bin", "large.bin"]
    for missing in (open_source, status):
        with pytest.raises(FileNotFoundError):
            missing(place.join("a.bin"))


def _publication(place: Location) -> None:
    with open_output(place.join("given-up.bin")) as output:
        output.write(os.urandom(12 * MIB))
        whole = output.is_published
    if whole:
        with pytest.raises(FileNotFoundError):
            status(place.join("given-up.bin"))
    with open_output(place.join("replaced.bin")) as output:
        output.write(b"old")
        output.commit()
    with open_output(place.join("replaced.bin")) as output:
        output.write(b"new and longer")
        output.commit()
    source: Any = open_source(place.join("replaced.bin"))
    assert bytes(memoryview(source.read(0, source.size))) == b"new and longer"
    source.close()


def _streams(place: Location) -> None:
    data = random.Random(5).randbytes(9 * MIB + 5)
    plain, sealed, back = (place.join(name) for name in ("plain", "sealed.ags1", "back"))
    with open_output(plain) as output:
        output.write(data)
        output.commit()
    told: list[int] = []
    metadata = ags1.encrypt_file(plain, sealed, KEY, progress=lambda done, total: told.append(done))
    assert told[-1] == len(data)
    assert ags1.decrypt_file(sealed, back, key_metadata=metadata) == len(data)
    with ags1.open(sealed, key_metadata=metadata) as reader:
        assert reader.read() == data
    source: Any = open_source(back)
    assert bytes(memoryview(source.read(0, source.size))) == data
    source.close()
    with pytest.raises(ags1.AuthenticationError):
        ags1.decrypt_file(sealed, place.join("nothing"), bytes(32))
    with ags1.open(place.join("written.ags1"), "wb", key=KEY) as writer:
        for begin in range(0, len(data), MIB // 2 + 1):
            writer.write(data[begin : begin + MIB // 2 + 1])
    with ags1.open(place.join("written.ags1"), key=KEY, length=writer.encrypted_length) as reader:
        pieces = iter(lambda: reader.read(100_001), b"")
        assert b"".join(pieces) == data


def test_local_files_keep_the_promises(request: pytest.FixtureRequest) -> None:
    check(_place("local", request))


def test_memory_keeps_the_promises(request: pytest.FixtureRequest) -> None:
    check(_place("memory", request))


def test_s3_keeps_the_promises(request: pytest.FixtureRequest, s3_server: object) -> None:
    check(_place("s3", request))


def test_gcs_keeps_the_promises(request: pytest.FixtureRequest, gcs_server: object) -> None:
    check(_place("gcs", request))


def test_gcs_gives_the_stored_bytes_of_an_object_with_an_encoding(
    request: pytest.FixtureRequest, gcs_server: Any
) -> None:
    """The service decompresses such an object for whoever does not say that gzip is taken: other bytes, no ranges."""
    place = _place("gcs", request)
    stored = gzip.compress(b"one, two, three" * 1000)
    address = (
        f"{gcs_server.endpoint}/upload/storage/v1/b/{place.container}/o?uploadType=media&name=x&contentEncoding=gzip"
    )
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        urllib.request.Request(address, data=stored, method="POST"), timeout=30
    ).close()
    assert [(each.name, each.size) for each in list_files(place)] == [("x", len(stored))]
    source = open_source(place.join("x"))
    assert bytes(memoryview(source.read(0, source.size))) == stored
    assert bytes(memoryview(source.read(5, 20))) == stored[5:25]


def test_azure_keeps_the_promises(request: pytest.FixtureRequest, azure_server: object) -> None:
    check(_place("azure", request))


def test_hdfs_keeps_the_promises(request: pytest.FixtureRequest, hdfs_server: object) -> None:
    check(_place("hdfs", request))


def test_a_directory_behind_fsspec_that_cannot_be_read_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threat: what a listing leaves out in silence is taken for removed."""
    from fsspec.implementations.memory import MemoryFileSystem

    place = Location(f"memory://walked-{next(_numbers)}")
    for name in ("a", "secret/b"):
        with open_output(place.join(name)) as output:
            output.write(b"1")
            output.commit()
    original = MemoryFileSystem.ls

    def ls(self: Any, path: str, detail: bool = True, **options: Any) -> Any:
        if path.endswith("/secret"):
            raise PermissionError(13, "Permission denied", path)
        return original(self, path, detail, **options)

    monkeypatch.setattr(MemoryFileSystem, "ls", ls)
    for listing in (list_files, iterate_files):
        with pytest.raises(PermissionError, match="secret"):
            list(listing(place))
