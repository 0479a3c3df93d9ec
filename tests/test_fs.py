"""The fsspec file system: what reads through fsspec reads decrypted paths, and nothing is ever written."""

from __future__ import annotations

import io
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

fsspec = pytest.importorskip("fsspec")

from ags1 import dataset, fs, kms  # noqa: E402
from ags1.errors import AuthenticationError, KeyAccessError, TruncatedError  # noqa: E402
from tests.checks import pattern  # noqa: E402

MASTER = bytes(range(100, 132))
ROWS = {"part=1/a.parquet": [1, 2, 3], "part=1/b.parquet": [4], "part=2/c.parquet": [5, 6]}
TOTAL = sum(sum(values) for values in ROWS.values())


@pytest.fixture(autouse=True)
def _registered() -> None:
    fs.register()


@pytest.fixture
def client() -> kms.MemoryKms:
    return kms.MemoryKms({"lake": MASTER})


@pytest.fixture
def vault(tmp_path: Path, client: kms.MemoryKms) -> Path:
    """A dataset of Parquet, CSV and other files."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    raw = tmp_path / "raw"
    for name, values in ROWS.items():
        (raw / "table" / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": values}), raw / "table" / name)
    (raw / "plain.csv").write_text("n,name\n1,one\n2,zwei\n")
    (raw / "large").write_bytes(pattern(3_000_000))
    (raw / "empty").write_bytes(b"")
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake"):
        pass
    return tmp_path / "vault"


@pytest.fixture
def system(vault: Path, client: kms.MemoryKms) -> fs.Ags1FileSystem:
    return fsspec.filesystem("ags1", target=vault, kms=client)


def test_the_variable_names_the_kms(vault: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kek").write_bytes(bytes(32))
    kms.LocalKms.create(tmp_path / "keys", {"lake": MASTER}, key_file=tmp_path / "kek").close()
    monkeypatch.setenv("AGS1_KMS", f"local:{tmp_path}/keys?key_file={tmp_path}/kek")
    with fsspec.open(f"ags1://plain.csv::file://{vault}") as file:
        assert file.read().startswith(b"n,name")
    monkeypatch.delenv("AGS1_KMS")
    with pytest.raises(TypeError, match="or the variable AGS1_KMS"):
        fsspec.filesystem("ags1", target=vault)


# -- names and sizes -----------------------------------------------------------------------------------------


def test_directories_are_listed_with_plaintext_sizes(system: fs.Ags1FileSystem) -> None:
    assert system.ls("", detail=False) == ["empty", "large", "plain.csv", "table"]
    assert system.ls("ags1://table/part=1", detail=False) == ["table/part=1/a.parquet", "table/part=1/b.parquet"]
    assert system.info("large")["size"] == 3_000_000
    assert system.info("large")["encrypted_length"] > 3_000_000
    assert system.info("table") == {"name": "table", "size": 0, "type": "directory"}
    assert system.info("")["type"] == "directory"
    assert system.ls("large") == [system.info("large")]
    assert (system.isfile("large"), system.isdir("large"), system.isdir("table"), system.isdir("")) == (
        True,
        False,
        True,
        True,
    )
    assert (system.exists("table/part=1"), system.exists("table/part")) == (True, False)
    for missing in ("nothing", "table/part", "_ags1", "_ags1/v-1.json"):
        with pytest.raises(FileNotFoundError):
            system.info(missing)
        with pytest.raises(FileNotFoundError):
            system.ls(missing)


def test_an_empty_directory_is_listed_as_one(tmp_path: Path, client: kms.MemoryKms) -> None:
    (tmp_path / "raw/sub/none").mkdir(parents=True)
    (tmp_path / "raw/sub/x").write_bytes(b"x")
    with dataset.encrypt(tmp_path / "raw", tmp_path / "vault", client, "lake") as vault:
        system = fs.Ags1FileSystem(vault)
        assert [(each["name"], each["type"]) for each in system.ls("sub")] == [
            ("sub/none", "directory"),
            ("sub/x", "file"),
        ]
        assert system.info("sub/none") == {"name": "sub/none", "size": 0, "type": "directory"}
        assert (system.isdir("sub/none"), system.isfile("sub/none"), system.exists("sub/none")) == (True, False, True)
        assert (system.ls("sub/none"), system.find("sub/none")) == ([], [])
        assert system.find("") == ["sub/x"]
        assert system.find("", withdirs=True) == ["sub", "sub/none", "sub/x"]
        assert list(system.walk("sub")) == [("sub", ["none"], ["x"]), ("sub/none", [], [])]
        system.get("sub", str(tmp_path / "copy"), recursive=True)
        assert (tmp_path / "copy/none").is_dir()
        with pytest.raises(IsADirectoryError):
            system.open("sub/none")


def test_glob_find_walk_and_du_see_the_whole_tree(system: fs.Ags1FileSystem) -> None:
    tables = [f"table/{name}" for name in ROWS]
    assert system.glob("table/*/*.parquet") == tables
    assert system.glob("ags1://**/*.parquet") == tables
    assert system.find("table") == tables
    assert system.find("large") == ["large"]
    assert system.find("") == ["empty", "large", "plain.csv", *tables]
    assert set(system.find("", withdirs=True)) >= {"table", "table/part=1"}
    assert [(root, sorted(names)) for root, _, names in system.walk("table")][1] == (
        "table/part=1",
        ["a.parquet", "b.parquet"],
    )
    assert system.du("") == sum(each["size"] for each in system.find("", detail=True).values())
    assert system.modified("large").tzinfo is not None
    assert system.ukey("large") != system.ukey("empty")


# -- reading -------------------------------------------------------------------------------------------------


def test_files_are_read_whole_in_ranges_and_as_text(system: fs.Ags1FileSystem) -> None:
    data = pattern(3_000_000)
    assert system.cat_file("large") == data
    assert system.cat_file("large", 1_048_570, 1_048_590) == data[1_048_570:1_048_590]
    assert system.cat_file("large", -5) == data[-5:]
    assert system.cat_file("large", 10, -10) == data[10:-10]
    assert system.cat_file("large", 2_999_999, 9_999_999) == data[-1:]
    assert system.cat_file("empty") == b""
    assert system.cat_ranges(["large"] * 2, [0, 7], [3, 9]) == [data[:3], data[7:9]]
    assert system.cat({"large": 1, "empty": 2}.keys().__iter__().__next__()) == data
    assert (system.head("large", 4), system.tail("large", 4)) == (data[:4], data[-4:])
    with system.open("large") as file:
        file.seek(2_000_000)
        assert file.read(10) == data[2_000_000:2_000_010]
    with system.open("plain.csv", "r", encoding="utf-8") as file:
        assert isinstance(file, io.TextIOWrapper)
        assert file.readline() == "n,name\n"


def test_a_chained_url_names_the_file_and_the_dataset(vault: Path, client: kms.MemoryKms) -> None:
    with fsspec.open(f"ags1://plain.csv::file://{vault}", ags1={"kms": client}) as file:
        assert file.read() == b"n,name\n1,one\n2,zwei\n"
    memory = fsspec.filesystem("memory")
    # The memory file system is one for the whole process, and putting into a directory that is there puts one deeper.
    name = os.urandom(8).hex()
    memory.put(str(vault), f"/{name}", recursive=True)
    try:
        with fsspec.open(f"ags1://table/part=2/c.parquet::memory://{name}", ags1={"kms": client}) as file:
            assert file.read(4) == b"PAR1"
        with fsspec.open(f"ags1://plain.csv::simplecache::memory://{name}", ags1={"kms": client}) as file:
            assert file.read(2) == b"n,"
    finally:
        memory.rm(f"/{name}", recursive=True)


def test_the_system_can_be_sent_where_the_kms_has_a_url(vault: Path, tmp_path: Path) -> None:
    with kms.LocalKms.create(tmp_path / "keys.json", {"lake": MASTER}, password="password"):
        pass
    (tmp_path / "password").write_text("password")
    url = f"local:{tmp_path / 'keys.json'}?password_file={tmp_path / 'password'}"
    system = fsspec.filesystem("ags1", target=str(vault), kms=url)
    assert pickle.loads(pickle.dumps(system)).cat_file("plain.csv").startswith(b"n,name")


def test_a_version_is_chosen_and_pinned(vault: Path, client: kms.MemoryKms, tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    with dataset.open(vault, client) as opened:
        uuid, digest = opened.uuid, opened.digest
        opened.add(tmp_path / "new")
    assert fsspec.filesystem("ags1", target=vault, kms=client).exists("new")
    first = fsspec.filesystem(
        "ags1", target=vault, kms=client, version=1, expected_uuid=uuid, expected_digest=digest, key_id="lake"
    )
    assert not first.exists("new")
    with fsspec.open(f"ags1://plain.csv::file://{vault}", ags1={"kms": client, "version": 1}) as file:
        assert file.read(1) == b"n"
    for pins in ({"expected_version": 7}, {"expected_uuid": uuid[::-1]}, {"expected_digest": digest}):
        with pytest.raises(AuthenticationError, match="expected"):
            fsspec.filesystem("ags1", target=vault, kms=client, **pins)
    with pytest.raises(KeyAccessError, match="expected"):
        fsspec.filesystem("ags1", target=vault, kms=client, key_id="other")


def test_each_system_shows_the_dataset_as_it_is_when_it_is_made(
    vault: Path, client: kms.MemoryKms, tmp_path: Path
) -> None:
    old = fsspec.filesystem("ags1", target=vault, kms=client)
    (tmp_path / "new").write_bytes(b"new")
    with dataset.open(vault, client) as opened:
        opened.add(tmp_path / "new")
        assert fsspec.filesystem("ags1", target=opened).cat_file("new") == b"new"
    assert not old.exists("new")
    assert fsspec.filesystem("ags1", target=vault, kms=client).cat_file("new") == b"new"


def test_what_is_missing_is_said(vault: Path) -> None:
    with pytest.raises(TypeError, match="target is needed"):
        fsspec.filesystem("ags1")
    with pytest.raises(TypeError, match="kms is needed"):
        fsspec.filesystem("ags1", target=vault)


def test_tampering_reaches_the_reader(vault: Path, system: fs.Ags1FileSystem) -> None:
    (plain,) = vault.glob("plain.csv.*.ags1")
    data = bytearray(plain.read_bytes())
    data[-1] ^= 1
    plain.write_bytes(data)
    with pytest.raises(AuthenticationError, match="failed authentication"):
        system.cat_file("plain.csv")
    (large,) = vault.glob("large.*.ags1")
    os.truncate(large, 100)
    with pytest.raises(TruncatedError):
        system.open("large")


# -- never writing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.open("a", "wb"),
        lambda s: s.open("large", "r+b"),
        lambda s: s.open("large", "ab"),
        lambda s: s.pipe_file("a", b"x"),
        lambda s: s.pipe("a", b"x"),
        lambda s: s.touch("a"),
        lambda s: s.mkdir("a"),
        lambda s: s.makedirs("a/b"),
        lambda s: s.rmdir("table"),
        lambda s: s.rm("large"),
        lambda s: s.rm_file("large"),
        lambda s: s.rm("table", recursive=True),
        lambda s: s.mv("large", "larger"),
        lambda s: s.cp_file("large", "larger"),
        lambda s: s.copy("large", "larger"),
        lambda s: s.put_file(__file__, "a"),
        lambda s: s.put(__file__, "a"),
        lambda s: s.write_text("a", "x"),
    ],
)
def test_every_way_to_write_is_refused(vault: Path, system: fs.Ags1FileSystem, change: Any) -> None:
    before = {path: path.read_bytes() for path in vault.rglob("*") if path.is_file()}
    with pytest.raises(OSError, match="ags1:// is read-only"):
        change(system)
    assert {path: path.read_bytes() for path in vault.rglob("*") if path.is_file()} == before


def test_no_plaintext_is_left_on_the_disk(
    vault: Path, system: fs.Ags1FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    with system.open("large") as file:
        file.read()
    system.cat_file("plain.csv")
    assert list(scratch.iterdir()) == []


# -- the libraries -------------------------------------------------------------------------------------------


def test_pandas_reads_decrypted_paths(vault: Path, client: kms.MemoryKms) -> None:
    pd = pytest.importorskip("pandas")
    options = {"target": str(vault), "kms": client}
    assert pd.read_csv("ags1://plain.csv", storage_options=options)["name"].tolist() == ["one", "zwei"]
    assert pd.read_parquet("ags1://table/part=1/a.parquet", storage_options=options)["n"].tolist() == [1, 2, 3]


def test_pyarrow_datasets_read_decrypted_paths(system: fs.Ags1FileSystem) -> None:
    ds = pytest.importorskip("pyarrow.dataset")
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    found = ds.dataset("table", filesystem=PyFileSystem(FSSpecHandler(system)), partitioning="hive", format="parquet")
    assert len(found.files) == len(ROWS)
    table = found.to_table(filter=ds.field("part") == 1)
    assert sorted(table.column("n").to_pylist()) == [1, 2, 3, 4]
    assert ds.dataset("table", filesystem=system, format="parquet").count_rows() == 6


def test_polars_reads_decrypted_paths(system: fs.Ags1FileSystem) -> None:
    pl = pytest.importorskip("polars")
    ds = pytest.importorskip("pyarrow.dataset")
    with system.open("table/part=1/a.parquet") as file:
        assert pl.read_parquet(file)["n"].to_list() == [1, 2, 3]
    with system.open("plain.csv") as file:
        assert pl.read_csv(file)["name"].to_list() == ["one", "zwei"]
    lazy = pl.scan_pyarrow_dataset(ds.dataset("table", filesystem=system, format="parquet"))
    assert lazy.select(pl.col("n").sum()).collect().item() == TOTAL


def test_duckdb_reads_decrypted_paths(system: fs.Ags1FileSystem) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register_filesystem(system)
        assert connection.sql("select sum(n) from 'ags1://table/*/*.parquet'").fetchall() == [(TOTAL,)]
        assert connection.sql("select count(*) from read_csv('ags1://plain.csv')").fetchall() == [(2,)]


# -- how it becomes known ------------------------------------------------------------------------------------


def test_the_package_says_its_protocol_to_fsspec() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("tomllib is needed")
    import tomllib

    path = Path(__file__).resolve().parent.parent / "pyproject.toml"
    points = tomllib.loads(path.read_text())["project"]["entry-points"]["fsspec.specs"]
    assert points == {"ags1": "ags1.fs:Ags1FileSystem"}
    assert fsspec.get_filesystem_class("ags1") is fs.Ags1FileSystem
