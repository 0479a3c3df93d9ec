"""One object of Google's or Azure's store whose name obstore cannot list is a finding, and the others are listed."""

from __future__ import annotations

import base64
import email.utils
import errno
import hashlib
import hmac
import http.client
import json
import random
import sys
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest

from ags1 import dataset, iceberg, parquet
from ags1.cli.paths import expand
from ags1.kms import MemoryKms
from ags1.storage import (
    Entry,
    Location,
    SortedListing,
    UnnamedError,
    iterate_files,
    list_files,
    list_names,
    sdk_listing,
    status,
)
from ags1.storage.opaque_keys import is_path
from tests.servers.fixtures import started
from tests.servers.gcs import GcsServer
from tests.servers.s3 import S3Server

PARTS = ["a", "b", "-", "", ".", "..", "x", "c d", "%2F", "ü", 'q"', "0", ".h"]


SDKS = {"google.cloud.storage": "gcp", "azure.storage.blob": "azure"}


@pytest.fixture
def without_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SDKS:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def with_sdk() -> None:
    for name in SDKS:
        pytest.importorskip(name)


@pytest.fixture(scope="module")
def google() -> Iterator[GcsServer]:
    """A server that takes any name: the one of all other tests keeps objects in files."""
    yield from started(GcsServer.start("memory"))


def place_of(server: GcsServer, bucket: str, objects: dict[str, bytes]) -> Location:
    server.make_bucket(bucket)
    for name, data in objects.items():
        put(server, bucket, name, data)
    account = {
        "gcs_base_url": server.endpoint,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    options = {"service_account_key": json.dumps(account), "allow_http": True}
    return Location(f"gs://{bucket}/m", options)


def put(server: GcsServer, bucket: str, name: str, data: bytes) -> None:
    url = f"{server.endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
    urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=600).close()


@pytest.mark.usefixtures("without_sdk")
def test_without_the_sdk_such_a_prefix_is_refused_and_the_extra_named(google: GcsServer, azure_server: Any) -> None:
    names = ["m/a", "m/d//x", "m/zz"]
    for place, extra in (
        (place_of(google, "refused", dict.fromkeys(names, b"x")), "gcp"),
        (azure_place(azure_server, "refused", names), "azure"),
    ):
        for listing in (list_files, iterate_files, SortedListing):
            with pytest.raises(ImportError, match=rf"ags1\[{extra}\]"):
                list(listing(place, on_error=list[OSError]().append))
        with pytest.raises(ImportError, match=rf"ags1\[{extra}\]"):
            list_names(place.join("d"))
        with pytest.raises(OSError, match="obstore cannot list"):
            list_files(place)
        vault = Location(f"{place.scheme}://{place.container}/vault", place.storage_options)
        with pytest.raises(ImportError, match=rf"ags1\[{extra}\]"):
            dataset.encrypt(place, vault, MemoryKms({"k": bytes(32)}), "k")


def put_blob(server: Any, container: str, name: str) -> None:
    url = urlsplit(server.endpoint)
    date, version = email.utils.formatdate(usegmt=True), "2021-12-02"
    path = f"{url.path}/{container}/{quote(name)}"
    said = f"x-ms-blob-type:BlockBlob\nx-ms-date:{date}\nx-ms-version:{version}\n/{server.account}{path}"
    digest = hmac.digest(base64.b64decode(server.key), f"PUT\n\n\n1{chr(10) * 9}{said}".encode(), hashlib.sha256)
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "x-ms-blob-type": "BlockBlob",
        "Authorization": f"SharedKey {server.account}:{base64.b64encode(digest).decode()}",
    }
    connection = http.client.HTTPConnection(url.netloc, timeout=600)
    connection.request("PUT", path, body=b"x", headers=headers)
    assert connection.getresponse().status == 201
    connection.close()


def azure_place(server: Any, container: str, names: list[str]) -> Location:
    server.make_bucket(container)
    for name in names:
        put_blob(server, container, name)
    options = {"account_name": server.account, "account_key": server.key, "endpoint": server.endpoint}
    return Location(f"az://{container}/m", {**options, "allow_http": True})


@pytest.mark.usefixtures("with_sdk")
@pytest.mark.parametrize("seed", range(8))
def test_with_the_sdk_each_name_is_listed_or_a_finding_of_its_own(
    google: GcsServer, azure_server: Any, seed: int
) -> None:
    chooser = random.Random(seed)
    keys = {"m/" + "/".join(chooser.choices(PARTS, k=chooser.randint(1, 4))) for _ in range(14)}
    keys = {key for key in keys if not key.endswith("/")} | {"m/a//b"}
    places = [place_of(google, f"sdk-{seed}", dict.fromkeys(keys, b"x"))]
    if not any(part in (".", "..") for key in keys for part in key.split("/")):
        places.append(azure_place(azure_server, f"sdk-{seed}", sorted(keys)))
    for place in places:
        errors: list[OSError] = []
        found = list_files(place, on_error=errors.append)
        assert {f"m/{each.name}" for each in found} == {key for key in keys if is_path(key)}
        assert all(isinstance(each, UnnamedError) for each in errors)
        named = {each.filename.split("/", 3)[3] for each in errors}
        assert named == {key for key in keys if not is_path(key)}
        for each in found:
            opened = status(each.location)
            assert each.is_same(opened.size, opened.modified, opened.etag)
        assert set(list_names(place)) - {".", ".."} == {key[2:] for key in keys if "/" not in key[2:] and is_path(key)}


@pytest.mark.usefixtures("with_sdk")
def test_with_the_sdk_names_without_address_stop_no_dataset(google: GcsServer, azure_server: Any) -> None:
    names = ["m/a", "m/d/b", "m/d//x", "m/zz"]
    kms = MemoryKms({"lake": bytes(32)})
    for place, planter in (
        (place_of(google, "sdk", dict.fromkeys(names, b"x")), put),
        (azure_place(azure_server, "sdk-encrypt", names), put_blob),
    ):
        vault = Location(f"{place.scheme}://{place.container}/vault", place.storage_options)
        with dataset.encrypt(place, vault, kms, "lake") as opened:
            assert sorted(each.path for each in opened.files) == ["a", "d/b", "zz"]
            assert opened.report is not None
            ((path, error),) = opened.report.errors
            assert path == "d//x"
            assert "copy it to another name" in str(error)
            assert not opened.report.ok
        for bad in ("vault/_ags1//x", "vault/_ags1/runs//x", "vault/_ags1/runs/y//x"):
            planter(azure_server if planter is put_blob else google, place.container, bad, *[b"x"] * (planter is put))
        with dataset.open(vault, kms) as again:
            assert again.open("zz").read() == b"x"
            assert {each.code for each in again.verify().findings} == {"foreign"}


@pytest.mark.usefixtures("with_sdk")
def test_with_the_sdk_a_command_and_a_parquet_tree_leave_out_and_name_what_has_no_address(
    google: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = place_of(google, "sdk-trees", dict.fromkeys(["m/a", "m/d//x", "m/zz"], b"x"))
    # Commands take settings from the environment, which cannot allow a server without TLS.
    with monkeypatch.context() as patched:
        patched.setattr("ags1.storage.Location", lambda text: Location(text, place.storage_options))
        for source in (f"{place}/", f"{place}/*"):
            said = Namespace()
            assert [each.path for each in expand([source], said)] == [f"{place}/a", f"{place}/zz"]
            assert said.left_out
            assert "gs://sdk-trees/m/d//x is left out" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="no Parquet files"):
        report = parquet.encrypt_tree(
            str(place), tmp_path / "copied", parquet.EncryptionConfig(b"k" * 16), others="copy", shared_keys=True,
            storage_options=place.storage_options,
        )  # fmt: skip
    assert [name for name, _ in report.left_out] == ["d//x"]
    assert {each.name for each in (tmp_path / "copied").rglob("*")} == {"a", "zz"}


@pytest.mark.usefixtures("with_sdk")
@pytest.mark.parametrize(
    ("place", "client", "token_of"),
    [
        ("gs://box/m", "google.cloud.storage.Client", lambda given: given.token),
        ("az://box/m", "azure.storage.blob.ContainerClient", lambda given: given.get_token("scope").token),
    ],
)
def test_the_sdk_lists_as_who_the_token_says_and_as_nobody_else(
    place: str, client: str, token_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*arguments: Any, **options: Any) -> None:
        raise OSError(token_of(options.get("credentials") or arguments[2]))

    monkeypatch.setattr(client, made)
    options = {"bearer_token": "mine", **({"account_name": "n"} if place.startswith("az") else {})}
    with pytest.raises(OSError, match=r"^mine$"):
        list(sdk_listing.pages(Location(place, options), "m/"))


def test_a_name_without_address_below_a_table_stays_and_is_named(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mock: tables on Google's and Azure's stores need TLS, which no server of the tests has."""
    rows = pa.table({"id": [1, 2]})
    table = iceberg.create_table(
        None, f"s3://{s3_bucket}/t", rows.schema, kms=MemoryKms({"lake": bytes(32)}), key_id="lake",
        storage_options={
            "s3.endpoint": s3_server.endpoint, "s3.access-key-id": s3_server.access_key,
            "s3.secret-access-key": s3_server.secret_key, "s3.region": s3_server.region,
        },
    )  # fmt: skip
    table.append(rows)
    s3_server.client().put_object(Bucket=s3_bucket, Key="t/data/unnamed", Body=b"x")

    def listed(location: Location, **options: Any) -> list[Entry]:
        options["on_error"](UnnamedError(errno.EINVAL, "no client can address it", f"{location}/data//x"))
        return list_files(location, **options)

    monkeypatch.setattr("ags1.iceberg.conversion.expiry.list_files", listed)
    report = iceberg.clean(table, older_than=timedelta(0))
    assert report.paths == [f"s3://{s3_bucket}/t/data/unnamed"]
    assert report.notes == [f"s3://{s3_bucket}/t/data//x stays: no client can address it"]
    assert table.verify().ok


def test_the_etag_of_a_listing_is_that_of_an_answer(azure_server: Any) -> None:
    """Azure's listing has no quotes around it: no dataset could be encrypted from there."""
    place = azure_place(azure_server, "etags", ["m/a"])
    (found,) = list_files(place)
    assert (found.etag or "").startswith('"')
    assert found.etag == status(found.location).etag
    vault = Location("az://etags/vault", place.storage_options)
    with dataset.encrypt(place, vault, MemoryKms({"lake": bytes(32)}), "lake") as opened:
        assert opened.open("a").read() == b"x"
