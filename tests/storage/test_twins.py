"""Files that no directory can hold together are refused before the first byte, in every room that writes a tree."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

import ags1
from ags1 import dataset, parquet
from ags1.cli import main
from ags1.kms import MemoryKms
from ags1.storage import Location, refuse_twins

KEY = bytes(range(32))
BOTH = r"a and a/b cannot both be written"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a store that holds `a` and `a/b`; MinIO refuses that."""
    boto3 = pytest.importorskip("boto3")
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        client = boto3.client(
            "s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
        )
        client.create_bucket(Bucket="lake")
        yield client
    finally:
        server.stop()


def put(store: Any, objects: dict[str, bytes]) -> None:
    for name, data in objects.items():
        store.put_object(Bucket="lake", Key=name, Body=data)


@pytest.mark.parametrize("seed", range(5))
def test_names_are_refused_exactly_if_one_is_a_directory_above_another(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(200):
        names = sorted(
            {"/".join(rng.choices(["a", "a.b", "a-", "ab", "b", "ü"], k=rng.randint(1, 3))) for _ in range(4)}
        )
        twins = {(one, other) for one in names for other in names if other.startswith(f"{one}/")}
        if twins:
            refused += 1
            with pytest.raises(NotADirectoryError) as caught:
                refuse_twins(names, Location(tmp_path))
            assert any(f"{one} and {other} cannot both be written" in str(caught.value) for one, other in twins)
        else:
            refuse_twins(names, Location(tmp_path))
        # A store holds both.
        refuse_twins(names, Location("s3://lake/plain"))
    assert 0 < refused < 200


def test_a_dataset_with_such_files_goes_into_a_store_or_without_one_of_them(store: Any, tmp_path: Path) -> None:
    put(store, {"raw/0": b"0", "raw/a": b"1", "raw/a.c": b"2", "raw/a/b": b"3"})
    kms, target = MemoryKms({"lake": bytes(32)}), tmp_path / "plain"
    with dataset.encrypt("s3://lake/raw", tmp_path / "vault", kms, "lake") as vault:
        for options in ({}, {"dry_run": True}, {"on_error": "collect"}, {"overwrite": False}):
            with pytest.raises(NotADirectoryError, match=BOTH):
                vault.decrypt(target, **options)
        assert not target.exists()
        assert vault.decrypt("s3://lake/plain").done == 4
        assert vault.decrypt(target, exclude="a/b").done == 3


def test_a_parquet_tree_with_such_files_is_refused(store: Any, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    put(store, {"tree/0": data, "tree/a": data, "tree/a/b": data})
    encryption = parquet.EncryptionConfig(KEY)
    with pytest.raises(NotADirectoryError, match=BOTH):
        parquet.encrypt_tree("s3://lake/tree", tmp_path / "vault", encryption, shared_keys=True)
    assert not (tmp_path / "vault").exists()
    assert len(parquet.encrypt_tree("s3://lake/tree", "s3://lake/vault", encryption, shared_keys=True).done) == 3
    # What is left out is in nobody's way.
    put(store, {"tree/a": b"no Parquet file"})
    report = parquet.encrypt_tree("s3://lake/tree", tmp_path / "vault", encryption, shared_keys=True, others="skip")
    assert report.done == ["0", "a/b"]


def test_the_commands_refuse_such_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two/a", "clear/a.ags1", "lake", "other/a"):
        Path(name).mkdir(parents=True)
    Path("key").write_bytes(KEY)
    for place in ("one/0.ags1", "one/a.ags1", "two/a/b.ags1"):
        metadata = ags1.encrypt_file(Path("key"), place, KEY)
        Path(f"{place}.akm").write_bytes(metadata.encode())
    Path("clear/a").write_bytes(b"1")
    Path("clear/a.ags1/b").write_bytes(b"2")
    for name in ("lake/a", "other/a/b"):
        pq.write_table(pa.table({"id": range(10)}), name)
    commands = [
        (["decrypt", "one", "two", "out", "--key-file", "key", "--any-length"], "a and a/b cannot"),
        (["encrypt", "clear", "out", "--key-file", "key"], "a.ags1 and a.ags1/b.ags1 cannot"),
        (
            ["parquet", "encrypt", "lake", "other", "out", "--footer-key", "file:key", "--shared-keys"],
            "a and a/b cannot",
        ),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for command, text in commands:
            assert main(command) == 4, capsys.readouterr().err
            assert text in capsys.readouterr().err
            assert not Path("out").exists()
