"""Splits, directories that are columns, and where files and keys come from. Without a Spark session."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import dataset
from ags1.dataset import manifests
from ags1.dataset.selection import Filter
from ags1.errors import AuthenticationError, FormatError, KeyAccessError, TruncatedError
from ags1.keys import KeyMetadata
from ags1.kms import load
from ags1.spark.source import inputs
from ags1.spark.source.inputs import (
    END,
    ListedFiles,
    SourceFileKeys,
    Split,
    cached_input,
    is_hidden,
    open_input,
    opened_task,
    packed,
)
from ags1.spark.source.options import SourceOptions
from ags1.spark.source.reader import constant, inferred, values_of
from tests.checks import KEY, PREFIX, every
from tests.spark.source_files import options

MIB = 1 << 20


def plan(files: Iterable[ListedFiles], chosen: SourceOptions) -> list[list[Split]]:
    return list(inputs.plan(files, chosen))


# -- splits ----------------------------------------------------------------------------------------------------------


def listed(path: str, length: int) -> ListedFiles:
    return ListedFiles(path, 0, length, length)


def test_big_files_are_cut_at_blocks_and_the_ranges_tile_them() -> None:
    tasks = plan([listed("big", 10 * MIB + 5)], options(split_bytes=3 * MIB + 17))
    assert [[(split.start, split.end) for split in task] for task in tasks] == [
        [(0, 3 * MIB)],
        [(3 * MIB, 6 * MIB)],
        [(6 * MIB, 9 * MIB)],
        [(9 * MIB, END)],
    ]


def test_ten_thousand_small_files_are_a_few_tasks() -> None:
    tasks = plan([listed(f"f{index:05}", 4096) for index in range(10_000)], options())
    assert len(tasks) == 10
    assert sum(map(len, tasks)) == 10_000
    assert [split.file.path for task in tasks for split in task] == [f"f{index:05}" for index in range(10_000)]


def test_files_that_cannot_be_split_are_whole() -> None:
    (task,) = plan([listed("big", 100 * MIB)], options(split_bytes=MIB, decode="text", wholetext=True))
    assert task == [Split(listed("big", 100 * MIB), 0, END)]


def test_more_tasks_on_request() -> None:
    assert len(plan([listed("big", 64 * MIB)], options(min_partitions=8))) == 8


def test_no_files_are_no_tasks_and_an_empty_file_is_one() -> None:
    assert plan([], options()) == []
    assert len(plan([listed("empty", 0)], options())) == 1


def test_splits_travel_without_loss() -> None:
    name = os.fsdecode(b"caf\xe9 \xc3\xa9")
    planned = [Split(ListedFiles(name, 3, 5, 41), 0, END), Split(ListedFiles("b", 0, 7, 43), 7, 9)]
    chosen = SourceOptions.parse({"path": "f", "keyref": "env:NAME"})
    assert opened_task(packed("files", planned), chosen)[1] == planned


# -- datasets --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def leafy(tmp_path_factory: pytest.TempPathFactory, kms_url: str) -> Path:
    """A dataset of 300 files in leaves of a few."""
    directory = tmp_path_factory.mktemp("leafy")
    chance = random.Random(7)
    for number in range(300):
        name = f"k={number % 7}/{'_' if number % 31 == 0 else ''}{number:03}.{'txt' if number % 3 else 'gz'}"
        path = directory / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(chance.choice((0, 5, 5, 5, 300_000, 2 * MIB + 77)) if number > 100 else 5))
    (directory / "raw/k=3/none").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "FAN_OUT", 8)
        patch.setattr(manifests, "_SMALL", 2)
        with load(kms_url) as client:
            dataset.encrypt(directory / "raw", directory / "vault", client, "lake").close()
    return directory / "vault"


LEAFY: list[dict[str, object]] = [
    {},
    {"split_bytes": "1m"},
    {"min_partitions": 40},
    {"min_partitions": 7, "decode": "text"},
    {"prefix": "k=3", "split_bytes": "1m"},
    {"prefix": "k=3/none"},
    {"include": "*.txt", "exclude": "k=1", "split_bytes": "2m"},
    {"include": "nothing"},
    {"decode": "text", "split_bytes": "1m"},
]


@every("given", LEAFY)
def test_all_files_of_a_dataset_are_in_one_task_each(leafy: Path, kms_url: str, given: dict[str, object]) -> None:
    with dataset.open(leafy, kms_url) as opened:
        entries = {each.path: each.plaintext_length for each in opened.files}
    source = open_input(options(path=leafy, kms=kms_url, **given))
    chosen = source._options  # type: ignore[attr-defined]
    flat = [(each.file, each.start, each.end) for task in plan(source.files(), chosen) for each in task]
    files = list(dict.fromkeys(file for file, _, _ in flat))
    wanted = Filter(chosen.include or None, chosen.exclude or None)
    assert [(each.path, each.length) for each in files] == [
        (path, length)
        for path, length in entries.items()
        if wanted.accepts(path)
        and (not chosen.prefix or path.startswith(f"{chosen.prefix}/"))
        and (chosen.decode == "binary" or not is_hidden(path))
    ]
    for file in files:
        ranges = [(start, end) for each, start, end in flat if each == file]
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == END
    source.close()


# -- directories -----------------------------------------------------------------------------------------------------


def test_directories_are_columns() -> None:
    assert values_of("a=1/x/b=x%2Fy/c=__HIVE_DEFAULT_PARTITION__/d=/e=2.csv") == {
        "a": "1",
        "b": "x/y",
        "c": None,
        "d": "",
    }


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2"], pa.int32()),
        (["1", "5000000000"], pa.int64()),
        (["1", "99999999999999999999"], pa.string()),
        (["1", "1.5"], pa.float64()),
        (["1e9", "1"], pa.string()),
        # A double would not have the digits of both.
        (["5000000000", "1.5"], pa.string()),
        (["2026-01-01 10:00:00", "2026-01-01"], pa.string()),
        (["2026-01-01", "2026-12-31"], pa.date32()),
        (["2026-01-01", "2026-13-31"], pa.string()),
        (["2026-01-01", "1"], pa.string()),
        (["1", "__HIVE_DEFAULT_PARTITION__"], pa.int32()),
        (["__HIVE_DEFAULT_PARTITION__"], pa.string()),
        (["x", "1"], pa.string()),
    ],
)
def test_types_of_directories(values: list[str], kind: pa.DataType) -> None:
    assert inferred([f"k={value}/file" for value in values]) == [("k", kind)]


def test_directories_whose_names_differ_in_case_are_one_column() -> None:
    assert inferred(["Day=1/file", "day=2/file", "DAY=x/file"]) == [("Day", pa.string())]


def test_a_directory_that_is_no_value_of_its_column_is_named() -> None:
    with pytest.raises(FormatError, match="p/k=x/f: its directory has k=x, which is not a value of the column's type"):
        constant("x", pa.field("k", pa.int32()), "p/k=x/f")
    assert constant("-07", pa.field("k", pa.int64()), "f").as_py() == -7
    assert constant(None, pa.field("k", pa.int64()), "f").as_py() is None


def test_what_is_hidden() -> None:
    assert [name for name in ("_SUCCESS", ".crc", "a/_b/c", "_k=1/c", "a/.b/c", "a/b_") if is_hidden(name)] == [
        "_SUCCESS",
        ".crc",
        "a/_b/c",
        "a/.b/c",
    ]


# -- keys by reference -----------------------------------------------------------------------------------------------


def keys(reference: str, **given: str) -> SourceFileKeys:
    return SourceFileKeys(SourceOptions.parse({"path": "f", "keyref": reference, **given}))


@pytest.mark.parametrize(
    "held",
    [KEY, KEY.hex().encode(), base64.b64encode(KEY) + b"\n", KeyMetadata(KEY).encode(), KEY.hex().upper().encode()],
)
def test_a_key_file_holds_a_key_in_any_form(held: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(held)
    assert keys(f"file:{tmp_path / 'key'}").metadata_for("f", "f") == KeyMetadata(KEY)


def test_key_metadata_has_prefix_and_length_too(tmp_path: Path) -> None:
    metadata = KeyMetadata(KEY, PREFIX, 1000)
    (tmp_path / "key").write_text(metadata.encode().hex())
    assert keys(f"file:{tmp_path / 'key'}").metadata_for("f", "f") == metadata
    (tmp_path / "all" / "a").mkdir(parents=True)
    (tmp_path / "all" / "a" / "f.ags1.key-metadata").write_bytes(metadata.encode())
    assert keys(f"file:{tmp_path / 'all'}").metadata_for("/lake/a/f.ags1", "a/f.ags1") == metadata
    with pytest.raises(KeyAccessError, match="there is no key metadata for /lake/g"):
        keys(f"file:{tmp_path / 'all'}").metadata_for("/lake/g", "g")


def test_a_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", KEY.hex())
    found = keys("env:LAKE_KEY", aad_prefix="{path}|{name}").metadata_for("/x/a/f.ags1", "a/f.ags1")
    assert found == KeyMetadata(KEY, b"a/f|f")
    assert keys("env:LAKE_KEY", aad_prefix_hex="0102").metadata_for("f", "f").aad_prefix == b"\1\2"
    monkeypatch.delenv("LAKE_KEY")
    with pytest.raises(KeyAccessError, match="LAKE_KEY is not set in this process: executors need it too"):
        keys("env:LAKE_KEY").metadata_for("f", "f")


def test_what_holds_no_key_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", "surely-no-key")
    with pytest.raises(KeyAccessError, match="holds no AES key: it has 13 bytes") as caught:
        keys("env:LAKE_KEY").metadata_for("f", "f")
    assert "surely" not in str(caught.value)
    with pytest.raises(KeyAccessError, match=r"cannot be read: .*every executor needs it under this path"):
        keys(f"file:{tmp_path / 'none'}").metadata_for("f", "f")
    with pytest.raises(KeyAccessError, match="of this name is not set") as caught:
        keys(f"env:{KEY.hex()}").metadata_for("f", "f")
    assert KEY.hex() not in str(caught.value)


def test_keys_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="read where they are used"):
        pickle.dumps(keys("env:LAKE_KEY"))


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKE_KEY", KEY.hex())
    for name in ("a.txt", "k=1/b.txt", "k=2/c.txt", "k=2/_SUCCESS", "k=2/c.txt.key-metadata"):
        path = tmp_path / "lake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(ags1.encrypt(name.encode(), KEY))
    return tmp_path / "lake"


def found(path: object, **given: str) -> list[str]:
    return [each.name for each in open_input(_plain(path, **given)).files()]


def _plain(path: object, **given: str) -> SourceOptions:
    return SourceOptions.parse({"path": str(path), "keyref": "env:LAKE_KEY", "decode": "text", **given})


def test_files_are_a_directory_a_glob_or_names(plain_files: Path) -> None:
    assert found(plain_files) == ["a.txt", "k=1/b.txt", "k=2/c.txt"]
    assert found(plain_files / "k=*") == ["k=1/b.txt", "k=2/c.txt"]
    assert found(plain_files / "k=?" / "*.txt") == ["k=1/b.txt", "k=2/c.txt"]
    assert found(f"{plain_files / 'a.txt'},{plain_files / 'k=1'}") == ["a.txt", "b.txt"]
    assert found(plain_files, include="*.txt", exclude="k=2") == ["a.txt", "k=1/b.txt"]
    assert found(plain_files, decode="binary") == ["a.txt", "k=1/b.txt", "k=2/_SUCCESS", "k=2/c.txt"]
    with pytest.raises(FileNotFoundError, match="none that matches"):
        found(plain_files / "nothing*")


def test_a_plain_file_is_opened_by_its_reference(plain_files: Path, caplog: pytest.LogCaptureFixture) -> None:
    inputs._warned_of.clear()
    source = open_input(_plain(plain_files))
    with caplog.at_level(logging.WARNING, "ags1.spark"):
        for each in source.files():
            with source.open(each).source as reader:
                assert reader.read() == each.name.encode()
                assert not reader.length_trusted
    # Once, whatever the number of files.
    (record,) = caplog.records
    assert "the length of this file and of the others is not trusted" in record.getMessage()
    assert "trust_fs_length=true" in record.getMessage()


def test_a_length_that_was_trusted_must_stay(plain_files: Path, caplog: pytest.LogCaptureFixture) -> None:
    inputs._warned_of.clear()
    source = open_input(_plain(plain_files / "a.txt", trust_fs_length="true"))
    (each,) = source.files()
    source.open(each).source.close()
    (plain_files / "a.txt").write_bytes(ags1.encrypt(b"", KEY))
    with pytest.raises(TruncatedError):
        source.open(each)
    assert not caplog.records


def test_files_on_another_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("LAKE_KEY", KEY.hex())
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/lake-of-tests/k={index}/f": ags1.encrypt(b"%d" % index, KEY) for index in range(2)})
    try:
        for name in ("memory://lake-of-tests", "memory://lake-of-tests/*/f"):
            source = open_input(_plain(name))
            files = list(source.files())
            assert [each.name for each in files] == ["k=0/f", "k=1/f"]
            with source.open(files[1]).source as reader:
                assert reader.read() == b"1"
    finally:
        memory.rm("/lake-of-tests", recursive=True)


# -- datasets --------------------------------------------------------------------------------------------------------


@pytest.fixture
def vault(tmp_path: Path, kms_url: str) -> Path:
    for name in ("a.txt", "d/b.txt", "d/_c", "e/.d"):
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    with load(kms_url) as client:
        dataset.encrypt(tmp_path / "raw", tmp_path / "vault", client, "lake").close()
    return tmp_path / "vault"


def test_files_of_a_dataset(vault: Path, kms_url: str) -> None:
    def names(**given: object) -> list[str]:
        source = open_input(options(path=vault, kms=kms_url, **given))
        try:
            return [each.path for each in source.files()]
        finally:
            source.close()

    assert names() == ["a.txt", "d/_c", "d/b.txt", "e/.d"]
    assert names(decode="text") == ["a.txt", "d/b.txt"]
    assert names(prefix="d/") == ["d/_c", "d/b.txt"]
    assert names(include="*.txt") == ["a.txt", "d/b.txt"]
    with pytest.raises(FileNotFoundError, match="has no directory"):
        names(prefix="none")
    with pytest.raises(KeyAccessError, match="'lake2' is expected"):
        names(key_id="lake2")
    with pytest.raises(AuthenticationError, match="7 is expected"):
        names(expected_version=7)


def test_what_is_no_dataset_is_said(tmp_path: Path, kms_url: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"no ags1 dataset here.*for single AGS1 files give .* keyref"):
        open_input(options(path=tmp_path, kms=kms_url))


def test_a_dataset_has_more_than_one_key(vault: Path, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(KEY.hex())
    with pytest.raises(ValueError, match="is a dataset, where each file has a key of its own: give the option kms"):
        open_input(SourceOptions.parse({"path": str(vault), "keyref": f"file:{key_file}"}))


def test_a_directory_of_a_dataset_is_read_with_a_prefix(vault: Path, kms_url: str) -> None:
    with pytest.raises(FileNotFoundError, match=rf"the dataset {vault}: load that, with the option prefix=d/e"):
        open_input(options(path=vault / "d" / "e", kms=kms_url))


def test_options_that_leave_no_file_are_named_where_a_schema_is_wanted(vault: Path, kms_url: str) -> None:
    pytest.importorskip("pyspark")
    from ags1.spark.source.reader import infer_schema

    for decode in ("avro", "arrow", "parquet"):
        with pytest.raises(FormatError, match="options include, exclude and prefix leave none"):
            infer_schema(options(path=vault, kms=kms_url, decode=decode, include="*.none"))


def test_a_dataset_is_opened_once_for_a_process_and_again_when_it_changed(
    vault: Path, kms_url: str, tmp_path: Path
) -> None:
    chosen = options(path=vault, kms=kms_url)
    planned = open_input(chosen)
    planned.close()
    first = cached_input(chosen, planned.identity)
    assert cached_input(chosen, planned.identity) is first
    (tmp_path / "raw" / "a.txt").write_text("changed")
    with load(kms_url) as client:
        dataset.encrypt(tmp_path / "raw", vault, client, "lake").close()
    again = open_input(chosen)
    again.close()
    assert cached_input(chosen, again.identity) is not first
    # What was planned with an older version is read from that one.
    older = cached_input(chosen, planned.identity)
    (file,) = (each for each in older.files() if each.path == "a.txt")
    with older.open(file).source as reader:
        assert reader.read() == b"a.txt"
    number, _, _ = planned.identity.partition(" ")
    with pytest.raises(AuthenticationError, match="it was replaced"):
        cached_input(chosen, f"{number} {'0' * 64}")
    with dataset.open(vault, kms_url) as opened:
        opened.expire(keep=1, older_than=None, grace=0)
    inputs._cache.clear()
    with pytest.raises(FileNotFoundError, match="no version 1: it may have been expired"):
        cached_input(chosen, planned.identity)
    inputs._cache.clear()


def test_a_file_that_was_replaced_under_way_is_read_as_it_was(vault: Path, kms_url: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from ags1.spark.source.reader import Rows

    chosen = options(path=vault, kms=kms_url, decode="text", include="a.txt")
    source = open_input(chosen)
    (task,) = plan(source.files(), chosen)
    (tmp_path / "raw" / "a.txt").write_text("A.TXT")
    with load(kms_url) as client:
        dataset.encrypt(tmp_path / "raw", vault, client, "lake").close()
    (batch,) = Rows(pa.schema([("value", pa.string())]), chosen).of(source, task)
    assert batch.column(0).to_pylist() == ["a.txt"]
    source.close()


def test_parquet_files_that_are_no_dataset(tmp_path: Path, kms_url: str) -> None:
    pytest.importorskip("pyspark")
    from ags1.parquet import EncryptionConfig, write_table
    from ags1.spark.source.reader import Rows, arrow_schema, infer_schema

    (tmp_path / "t" / "k=1").mkdir(parents=True)
    table = pa.table({"id": range(100)})
    with load(kms_url) as client:
        write_table(table, tmp_path / "t" / "k=1" / "a.parquet", EncryptionConfig.from_kms(client, "lake"))
    chosen = options(path=tmp_path / "t", kms=kms_url, decode="parquet")
    schema = infer_schema(chosen)
    assert schema.names == ["id", "k"]
    source = open_input(chosen)
    (task,) = plan(source.files(), chosen)
    batches = list(Rows(arrow_schema(schema), chosen).of(source, task))
    assert pa.Table.from_batches(batches).to_pylist() == [{"id": number, "k": 1} for number in range(100)]
    pq.write_table(table, tmp_path / "t" / "k=1" / "b.parquet")
    with pytest.raises(FormatError, match=r"b\.parquet"):
        list(Rows(arrow_schema(schema), chosen).of(source, plan(source.files(), chosen)[0]))
    allowed = options(path=tmp_path / "t", kms=kms_url, decode="parquet", allow_plaintext=True)
    source = open_input(allowed)
    batches = list(Rows(arrow_schema(schema), allowed).of(source, plan(source.files(), allowed)[0]))
    assert sum(batch.num_rows for batch in batches) == 200


def test_what_a_reader_insists_on_holds_when_the_versions_of_a_dataset_are_gone(tmp_path: Path, kms_url: str) -> None:
    """Whoever can write there can remove them, and put encrypted Parquet files of any other key in their place."""
    pytest.importorskip("pyspark")
    from ags1.parquet import EncryptionConfig, write_table
    from ags1.spark.source.reader import Rows, arrow_schema, infer_schema

    (tmp_path / "t").mkdir()
    with load(kms_url) as client:
        config = EncryptionConfig.from_kms(client, "lake2", aad_prefix=b"a.parquet")
        write_table(pa.table({"id": [1]}), tmp_path / "t" / "a.parquet", config)

    def chosen(**given: Any) -> SourceOptions:
        return options(path=tmp_path / "t", kms=kms_url, decode="parquet", **given)

    insisting: list[dict[str, Any]] = [{"key_id": "lake"}, {"expected_version": 7}, {"prefix": "a"}]
    for given in (*insisting, {"version_as_of": 7}):
        with pytest.raises(
            ValueError, match=r"is for a dataset, and these are single files \(.*\), or its versions are gone"
        ):
            open_input(chosen(**given))
    right = chosen(aad_prefix="{path}")
    source = open_input(right)
    (task,) = plan(source.files(), right)
    schema = arrow_schema(infer_schema(right))
    assert [batch.to_pylist() for batch in Rows(schema, right).of(source, task)] == [[{"id": 1}]]
    wrong = chosen(aad_prefix_hex="00")
    with pytest.raises(AuthenticationError, match="it is another file"):
        list(Rows(schema, wrong).of(open_input(wrong), task))
    shutil.rmtree(tmp_path / "t")
    dataset.encrypt(__file__, tmp_path / "t", kms_url, "lake").close()
    with pytest.raises(ValueError, match="the option aad_prefix is for single files, and this is a dataset"):
        open_input(right)


def test_directories_that_cannot_be_listed_are_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows would be missing without a word."""
    lake, chosen = tmp_path / "lake", options(path=tmp_path / "lake", keyref="env:KEY", decode="text")
    (lake / "day=1").mkdir(parents=True)
    (lake / "day=1" / "a.ags1").write_bytes(b"")
    (lake / "_old").symlink_to(tmp_path)
    source = open_input(chosen)
    assert [each.name for each in source.files()] == ["day=1/a.ags1"]
    (lake / "day=2").symlink_to(tmp_path / "lake" / "day=1")
    with pytest.raises(NotADirectoryError, match="so its rows would be missing"):
        list(source.files())
    (lake / "day=2").unlink()
    real = os.scandir

    def refusing(path: Any) -> Any:
        if os.fspath(path).endswith("day=1"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError):
        list(source.files())
