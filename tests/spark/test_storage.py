"""Trees, local and remote: listings in the order of manifests, and files that appear whole or not at all."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ags1
from ags1.dataset._manifest import sort_key
from ags1.dataset._tree import Filter
from ags1.errors import TruncatedError
from ags1.spark import _remote_storage
from ags1.spark._local_storage import LocalStorage
from ags1.spark._locations import Location, locate
from ags1.spark._remote_storage import RemoteStorage, _time_of
from ags1.spark._storage import Storage
from ags1.storage import open_source
from tests.checks import KEY, in_threads, pattern

TRICKY = (
    "a-b", "a/b", "a0", "a.d/x", "a/b.d/c", "a!/z", "B", "z[1]/*?", "é/ü", "sp ace/%41", "#/x", "_ags1x/y", "b/_ags1/x",
)  # fmt: skip
KINDS = ("local", "memory", "s3")


class _Made:
    """Makes trees of a kind, and reaches their files behind the storage's back."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.storage = Storage(locate(url))

    def put(self, path: str, data: bytes = b"x") -> None:
        if self.kind == "local":
            name = Path(self.storage.location.join(path))
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_bytes(data)
        else:
            self.storage.location.file_system().pipe_file(self.storage.location.join(path), data)

    def get(self, path: str) -> bytes:
        return self.storage.read_whole(path)

    def walked(self, wanted: Filter | None = None, **options: Any) -> list[str]:
        return [each.path for each in self.storage.walk(wanted or Filter(), **options)]


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Made]:
    """An empty tree of each kind."""
    if request.param == "local":
        yield _Made("local", str(tmp_path / "tree"))
    elif request.param == "memory":
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("memory").store.clear()
        fsspec.filesystem("memory").pseudo_dirs[:] = [""]
        yield _Made("memory", "memory://lake/tree")
    else:
        yield _Made("s3", f"{request.getfixturevalue('s3').url}/tree")


# -- listing -------------------------------------------------------------------------------------------------


def test_files_come_in_the_order_of_their_whole_paths(made: _Made) -> None:
    for path in TRICKY:
        made.put(path)
    made.put("_ags1/metadata.json")
    made.put("_ags1/staged-1/a/b")
    assert made.walked() == sorted(TRICKY, key=sort_key)
    assert made.walked().index("a-b") < made.walked().index("a/b") < made.walked().index("a0")


def test_sizes_and_times_are_the_same_in_a_listing_and_of_one_file(made: _Made) -> None:
    made.put("a/b", b"12345")
    made.put("c", b"")
    for listed in made.storage.walk(Filter()):
        assert listed == made.storage.stat(listed.path)
        assert listed.mtime_ns > 1_600_000_000 * 10**9
    assert [each.size for each in made.storage.walk(Filter())] == [5, 0]


def test_only_what_is_meant_is_listed(made: _Made) -> None:
    for path in ("a/x.csv", "a/x.txt", "b/y.csv", "b/deep/z.csv"):
        made.put(path)
    assert made.walked(Filter("*.csv", "deep")) == ["a/x.csv", "b/y.csv"]
    assert made.walked(Filter(exclude="b/deep"), below="b") == ["b/y.csv"]
    assert made.walked(Filter("b/deep/*"), below="b") == ["b/deep/z.csv"]


def test_a_directory_can_be_listed_alone_even_in_the_control_directory(made: _Made) -> None:
    for path in ("a/x", "_ags1/staged-1/a/y", "_ags1/staged-1/z"):
        made.put(path)
    assert made.walked(below="a") == ["a/x"]
    assert made.walked(below="_ags1/staged-1") == ["_ags1/staged-1/a/y", "_ags1/staged-1/z"]


def test_what_is_missing_is_no_empty_tree(made: _Made) -> None:
    for below in ("", "nothing"):
        with pytest.raises(FileNotFoundError):
            made.walked(below=below)
        made.put("a")


def test_a_file_with_the_name_of_the_control_directory_is_refused(made: _Made) -> None:
    made.put("_ags1")
    with pytest.raises(ValueError, match="_ags1"):
        made.walked()


def test_a_tree_can_be_a_single_file(made: _Made) -> None:
    made.put("only.csv", b"a,b")
    one = Storage(locate(made.storage.location.url("only.csv")))
    assert [(each.path, each.size) for each in one.walk(Filter())] == [("only.csv", 3)]
    assert one.read("only.csv", 1, 2) == b",b"
    assert one.exists("only.csv")
    assert one.stat("only.csv").size == 3
    with closing(open_source(one.opened("only.csv"))) as source:
        assert bytes(source.read(0, 3)) == b"a,b"


def test_a_directory_with_the_name_of_its_tree_is_not_taken_for_the_tree(made: _Made) -> None:
    made.put("tree", b"inner")
    assert made.storage.read("tree", 0, 5) == b"inner"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sets(st.lists(st.text("ab-.0é !/", min_size=1, max_size=3), min_size=1, max_size=4).map("/".join)))
def test_any_listing_is_sorted_and_whole(tmp_path_factory: pytest.TempPathFactory, paths: set[str]) -> None:
    fsspec = pytest.importorskip("fsspec")
    tree = _Made("memory", f"memory://any-{tmp_path_factory.mktemp('x').name}")
    local = _Made("local", str(tmp_path_factory.mktemp("tree")))
    kept: set[str] = set()
    for path in sorted(paths):
        parts = path.split("/")
        above = {"/".join(parts[:count]) for count in range(1, len(parts))}
        # What a directory tree can hold: no empty and no dot components, nothing both file and directory.
        if {"", ".", ".."} & set(parts) or above & kept or any(each.startswith(f"{path}/") for each in kept):
            continue
        kept.add(path)
        tree.put(path)
        local.put(path)
    fsspec.filesystem("memory").pipe_file(f"{tree.storage.location.root}/zz", b"x")
    local.put("zz")
    assert tree.walked() == local.walked() == sorted({*kept, "zz"}, key=sort_key)


def test_what_cannot_be_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/x").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "broken").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    skipped: list[tuple[str, str]] = []
    listed = list(Storage(locate(tmp_path)).walk(Filter(), lambda *told: skipped.append(told)))
    assert [path for path, _ in skipped] == ["link", "pipe"]
    assert [(each.path, type(each.error)) for each in listed] == [
        ("broken", FileNotFoundError),
        ("real/x", type(None)),
    ]


def test_markers_of_directories_in_s3_are_no_files(s3: Any) -> None:
    made = _Made("s3", f"{s3.url}/tree")
    for key, body in (("tree/", b""), ("tree/a/", b""), ("tree/a", b""), ("tree/a/b", b"x"), ("tree/empty", b"")):
        s3.client.put_object(Bucket=s3.bucket, Key=key, Body=body)
    skipped: list[tuple[str, str]] = []
    assert made.walked(skipped=lambda *told: skipped.append(told)) == ["a/b", "empty"]
    assert skipped == []


def test_names_of_s3_that_no_path_can_have_are_told_and_end(s3: Any) -> None:
    made = _Made("s3", f"{s3.url}/tree")
    for key in ("tree/a//b", "tree/../up", "tree/./x", "tree/c/", "tree/ok"):
        s3.client.put_object(Bucket=s3.bucket, Key=key, Body=b"x")
    skipped: list[tuple[str, str]] = []
    assert made.walked(skipped=lambda *told: skipped.append(told)) == ["ok"]
    assert sorted(path for path, _ in skipped) == [".", "..", "a/", "c/"]
    assert {reason for path, reason in skipped if path == "a/"} == {"has an empty component (//) in its name"}


def test_a_whole_bucket_is_a_tree(s3: Any) -> None:
    made = _Made("s3", s3.url)
    made.put("b/c")
    made.put("a")
    made.put("_ags1/metadata.json")
    assert made.walked() == ["a", "b/c"]


def test_a_directory_that_cannot_be_listed_is_an_error_and_the_rest_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    made = _Made("memory", "memory://refusing")
    for path in ("a/x", "b/x", "c/x"):
        made.put(path)
    list_one = RemoteStorage._list

    def refusing(self: RemoteStorage, directory: str) -> Any:
        if directory.endswith("/b"):
            raise PermissionError(13, "no", directory)
        return list_one(self, directory)

    monkeypatch.setattr(RemoteStorage, "_list", refusing)
    assert [(each.path, type(each.error)) for each in made.storage.walk(Filter())] == [
        ("a/x", type(None)),
        ("b", PermissionError),
        ("c/x", type(None)),
    ]


def test_listings_are_never_old(made: _Made) -> None:
    made.put("a")
    assert made.walked() == ["a"]
    other = Storage(made.storage.location)
    made.put("b")
    assert [each.path for each in other.walk(Filter())] == ["a", "b"]
    other.remove("a")
    assert made.walked() == ["b"]
    assert not made.storage.exists("a")


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, 0),
        ({"LastModified": datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)}, 1767323045678901000),
        ({"mtime": datetime(2026, 1, 2, 3, 4, 5)}, 1767323045000000000),
        ({"mtime": 1767323045.678901}, 1767323045678901000),
        ({"created": 1767323045}, 1767323045000000000),
        ({"last_modified": None, "updated": "2026-01-02T03:04:05.678Z"}, 1767323045678000000),
        ({"updated": "yesterday"}, 0),
        ({"mtime": datetime(1969, 12, 31, 23, 59, 59, tzinfo=timezone.utc)}, -(10**9)),
    ],
)
def test_times_in_any_form_become_nanoseconds(info: dict[str, Any], expected: int) -> None:
    assert _time_of(info, whole_seconds=False) == expected
    assert _time_of(info, whole_seconds=True) == expected - expected % 10**9


# -- reading -------------------------------------------------------------------------------------------------


def test_ranges_are_read_exactly(made: _Made) -> None:
    made.put("a/b", b"0123456789")
    made.put("empty", b"")
    assert made.storage.read("a/b", 3, 4) == b"3456"
    assert made.storage.read("empty", 0, 0) == b""
    with pytest.raises(TruncatedError, match="only 2 of 4 bytes are at offset 8"):
        made.storage.read("a/b", 8, 4)
    for size in (0, 1):
        with pytest.raises(FileNotFoundError):
            made.storage.read("nothing", 0, size)


def test_what_is_there_is_told_from_what_is_not(made: _Made) -> None:
    made.put("a/b", b"x")
    assert [made.storage.exists(path) for path in ("a", "a/b", "a/c", "b", "a/b/c")] == [True, True, *[False] * 3]
    assert made.storage.names("a") == ["b"]
    assert made.storage.names("") == ["a"]
    assert made.storage.names("nothing") == []
    with pytest.raises(IsADirectoryError):
        made.storage.stat("a")
    with pytest.raises(FileNotFoundError):
        made.storage.stat("b")


def test_a_storage_that_does_not_answer_is_no_missing_file(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")

    def fail(self: Any, path: str, **options: Any) -> Any:
        raise PermissionError(13, "no", path)

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "info", fail)
    with pytest.raises(PermissionError):
        Storage(locate("memory://lake")).exists("a")


def test_sources_and_targets_are_what_files_are_encrypted_from_and_to(made: _Made) -> None:
    text = pattern(3000)
    made.put("plain", text)
    storage = made.storage
    with storage.target("sealed/x") as target:
        metadata = ags1.encrypt_file(storage.opened("plain"), target, KEY, block_length=1000)
        if made.kind != "local":
            assert not storage.exists("sealed/x")
    assert storage.stat("sealed/x").size == metadata.file_length
    with ags1.open(storage.opened("sealed/x"), key_metadata=metadata) as reader:
        assert reader.read() == text
    with storage.target("again") as target:
        ags1.decrypt_file(storage.opened("sealed/x"), target, key_metadata=metadata)
    assert made.get("again") == text


def test_remote_sources_are_files_that_can_be_read_anyhow() -> None:
    made = _Made("memory", "memory://lake/read")
    made.put("x", b"0123456789")
    file = made.storage.opened("x")
    assert file.read(3) == b"012"
    assert (file.seek(-2, os.SEEK_END), file.read(), file.read()) == (8, b"89", b"")
    assert (file.seek(1), file.seek(1, os.SEEK_CUR), file.tell(), file.readall()) == (1, 2, 2, b"23456789")
    with pytest.raises(OSError, match="negative"):
        file.seek(-1)
    assert isinstance(file, io.RawIOBase)


# -- writing -------------------------------------------------------------------------------------------------


def test_small_files_are_put_in_place_and_replaced_whole(made: _Made) -> None:
    for data in (b"old", memoryview(b"new"), b""):
        made.storage.publish("deep/er/x", data)
        assert made.get("deep/er/x") == bytes(data)
    assert made.walked() == ["deep/er/x"]


def test_attempts_that_put_the_same_file_in_place_at_once_do_not_disturb_each_other(made: _Made) -> None:
    texts = [bytes([65 + number]) * 10_000 for number in range(4)]

    def publish(text: bytes) -> Callable[[], None]:
        storage = Storage(made.storage.location)
        return lambda: [storage.publish(f"d/{number}", text) for number in range(5)] and None

    in_threads([publish(text) for text in texts])
    assert made.walked() == [f"d/{number}" for number in range(5)]
    assert all(made.get(path) in texts for path in made.walked())


def test_a_directory_that_was_moved_away_is_made_again(tmp_path: Path) -> None:
    storage = Storage(locate(tmp_path))
    storage.publish("staged/a/x", b"1")
    Storage(locate(tmp_path)).move_tree("staged/a", "a")
    storage.publish("staged/a/y", b"2")
    assert sorted(each.path for each in storage.walk(Filter())) == ["a/x", "staged/a/y"]


def fail(storage: Storage, path: str) -> None:
    """Begin to write a file, and fail."""
    with storage.target(path) as target:
        if not isinstance(target, str):
            target.write(b"half")
        raise ZeroDivisionError


def test_a_failed_target_leaves_what_was_there(made: _Made) -> None:
    made.put("x", b"old")
    for path in ("x", "new"):
        with pytest.raises(ZeroDivisionError):
            fail(made.storage, path)
    assert made.walked() == ["x"]
    assert made.get("x") == b"old"


def test_control_files_are_beside_the_tree(made: _Made) -> None:
    made.storage.write_control("run-1.json", b"{}")
    made.storage.write_control("run-1.json", b"{1}")
    assert made.storage.read_control("run-1.json") == b"{1}"
    assert made.storage.names("_ags1") == ["run-1.json"]
    with pytest.raises(FileNotFoundError):
        made.storage.read_control("run-2.json")


def test_files_are_moved_over_others(made: _Made) -> None:
    made.put("_ags1/s/z[1]*", b"new")
    made.put("deep/x", b"old")
    made.storage.move("_ags1/s/z[1]*", "deep/x")
    assert made.get("deep/x") == b"new"
    assert not made.storage.exists("_ags1/s/z[1]*")


def test_trees_are_moved_over_others_and_again(made: _Made) -> None:
    for path in ("a/x", "new/deep/y", "z[1]/*"):
        made.put(f"_ags1/staged/{path}", b"new")
    for path in ("a/x", "a/kept"):
        made.put(path, b"old")
    for _ in range(2):
        made.storage.move_tree("_ags1/staged", "")
        assert made.walked() == ["a/kept", "a/x", "new/deep/y", "z[1]/*"]
        assert [made.get(path) for path in made.walked()] == [b"old", b"new", b"new", b"new"]
        assert not made.storage.exists("_ags1/staged")


def test_an_interrupted_move_of_a_tree_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(locate(tmp_path))
    for number in range(4):
        storage.publish(f"staged/d/{number}", b"new")
        storage.publish(f"d/{number}", b"old")
    replace, left = os.replace, [2]

    def dying(source: str, target: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            storage.move_tree("staged", "")
    storage.move_tree("staged", "")
    assert [storage.read(f"d/{number}", 0, 3) for number in range(4)] == [b"new"] * 4
    assert not storage.exists("staged")


def test_a_directory_that_is_not_there_is_moved_by_one_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(locate(tmp_path))
    for number in range(3):
        storage.publish(f"staged/d/{number}", b"x")
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("files were moved one by one"))
    storage.move_tree("staged/d", "far/away/d")
    assert storage.names("far/away/d") == ["0", "1", "2"]


def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path: Path) -> None:
    storage = Storage(locate(tmp_path))
    storage.publish("staged/d/x", b"new")
    storage.publish("d", b"old")
    with pytest.raises(NotADirectoryError):
        storage.move_tree("staged", "")
    assert storage.read("d", 0, 3) == b"old"
    assert storage.exists("staged/d/x")


def test_what_is_removed_is_gone_and_may_be_removed_again(made: _Made) -> None:
    for path in ("a/x", "a/b/[y]", "a*/z", "keep"):
        made.put(path)
    for _ in range(2):
        made.storage.remove_tree("a")
        assert made.walked() == ["a*/z", "keep"]
    for _ in range(2):
        made.storage.remove("a*/z")
        assert made.walked() == ["keep"]


def test_a_storage_is_pickled_without_what_it_has_open(made: _Made) -> None:
    made.storage.publish("x", b"1")
    copy = pickle.loads(pickle.dumps(made.storage))
    assert type(copy) is type(made.storage) is (LocalStorage if made.kind == "local" else RemoteStorage)
    copy.publish("y", b"2")
    assert made.walked() == ["x", "y"]


def test_where_files_appear_while_they_are_written_they_get_their_name_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    # fsspec's local file system stands for HDFS: real directories, a rename, and no uploads.
    storage: Any = object.__new__(RemoteStorage)
    storage.__init__(Location(str(tmp_path / "tree"), "file", (), f"file://{tmp_path}/tree"))
    storage.publish("a/x", b"old")
    storage.publish("a/x", b"new")
    with storage.target("b/y") as target:
        target.write(b"123")
        assert storage.names("b") != ["y"]
    assert [(each.path, each.size) for each in storage.walk(Filter())] == [("a/x", 3), ("b/y", 3)]
    with pytest.raises(ZeroDivisionError):
        fail(storage, "b/y")
    assert storage.read("b/y", 0, 3) == b"123"
    assert storage.names("b") == ["y"]
    storage.move_tree("a", "c")
    assert [each.path for each in storage.walk(Filter())] == ["b/y", "c/x"]
    # What a killed writer leaves is no file of the tree.
    (tmp_path / "tree/b/.y.123.ags1-tmp").write_bytes(b"half")
    skipped: list[str] = []
    assert len(list(storage.walk(Filter(), lambda path, _: skipped.append(path)))) == 2
    assert skipped == ["b/.y.123.ags1-tmp"]
    assert _remote_storage._WHOLE.isdisjoint({"file", "hdfs", "sftp"})
