"""What is listed is what is opened, also of keys of S3 that are no paths."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from ags1 import audit, dataset, encrypt
from ags1.kms import MemoryKms
from ags1.storage import (
    Location,
    SortedListing,
    create,
    list_files,
    list_names,
    open_output,
    open_source,
    remove,
    status,
)
from ags1.storage.opaque_keys import client_of

PARTS = ["a", "b", "", "", ".", "..", "x", "\x01", "c d", "%2F", "ü", "a+b"]
OPTIONS = {"access_key_id": "x", "secret_access_key": "x", "region": "us-east-1", "allow_http": True}


@pytest.fixture(scope="module")
def service() -> Iterator[Any]:
    """moto, which takes any key; MinIO refuses most of these."""
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        yield boto3.client(
            "s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
        )
    finally:
        server.stop()


def bucket(service: Any, name: str, objects: dict[str, bytes]) -> Location:
    service.create_bucket(Bucket=name)
    for key, data in objects.items():
        service.put_object(Bucket=name, Key=key, Body=data)
    return Location(f"s3://{name}/m", {**OPTIONS, "endpoint": service.meta.endpoint_url})


def contents(location: Location) -> bytes:
    source = open_source(location)
    return bytes(memoryview(source.read(0, source.size)))


@pytest.mark.parametrize("seed", range(6))
def test_each_listed_object_is_the_one_that_its_name_opens(service: Any, seed: int) -> None:
    chooser = random.Random(seed)
    keys = {"m/" + "/".join(chooser.choices(PARTS, k=chooser.randint(1, 4))) for _ in range(12)}
    objects = {key: chooser.randbytes(chooser.randint(1, 90)) for key in sorted(keys) if key != "m/"}
    place = bucket(service, f"random-{seed}", objects)
    found = list_files(place)
    assert {f"m/{each.name}": contents(each.location) for each in found} == objects
    assert all(status(each.location).is_same(each.size, each.modified, each.etag) for each in found)
    with SortedListing(place) as listing:
        assert {f"m/{each.name}" for each in listing} == set(objects)
    wanted = sorted(key[2:] for key in objects if "/" not in key[2:])
    assert sorted(list_names(place)) == wanted
    for each in found:
        with pytest.raises(FileExistsError):
            create(each.location, b"other")
        with open_output(each.location) as output:
            output.write(each.name.encode())
            output.commit()
        assert contents(each.location) == each.name.encode()
    remove(each.location for each in found)
    assert service.list_objects_v2(Bucket=f"random-{seed}").get("Contents", []) == []


def test_an_object_whose_name_ends_in_a_slash_is_not_called_what_another_is(service: Any) -> None:
    sealed = encrypt(b"secret" * 100, bytes(32))
    objects = {"m/x": sealed, "m/x/": b"name,ssn\n" * 400, "m/y": b"y", "m/y/": b"", "m/z/": b""}
    place = bucket(service, "marks", objects)
    assert {each.name: contents(each.location)[:4] for each in list_files(place)} == {
        "x": sealed[:4],
        "x/": b"name",
        "y": b"y",
    }
    assert "column names: 1 file, 3.6 kB: x/" in str(audit.audit(place))


def test_one_name_that_is_no_path_does_not_stop_a_dataset(service: Any) -> None:
    place = bucket(service, "vaults", {"m/a": b"a", "m/c": b"c"})
    vault = Location("s3://vaults/vault", place.storage_options)
    kms = MemoryKms({"lake": bytes(32)})
    dataset.encrypt(place, vault, kms, "lake")
    service.put_object(Bucket="vaults", Key="vault//planted", Body=b"x")
    service.put_object(Bucket="vaults", Key="vault/./_ags1", Body=b"x")
    opened = dataset.open(vault, kms)
    assert opened.open("a").read() == b"a"
    found = {(each.subject, each.code) for each in opened.verify().findings}
    assert found == {("/planted", "foreign"), ("./_ags1", "foreign")}
    service.put_object(Bucket="vaults", Key="m/a//b", Body=b"x")
    with pytest.raises(OSError, match="a//b"):
        dataset.encrypt(place, Location("s3://vaults/other", place.storage_options), kms, "lake")


def test_a_forked_child_has_a_client_of_its_own(service: Any) -> None:
    """The threat: two processes send requests over one connection, and each gets answers to the other's."""
    place = bucket(service, "forked", {"m/a//b": b"x"}).join("a//b")
    assert contents(place) == b"x"
    mine, _ = client_of(place)
    assert client_of(place)[0] is mine
    if (child := os.fork()) == 0:
        os._exit(client_of(place)[0] is mine)
    assert os.waitpid(child, 0)[1] == 0
