"""Which files a command line means, and where each result goes."""

from __future__ import annotations

import argparse
import io
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ags1.cli import paths as cli_paths
from ags1.cli.paths import Job, pair_up, size_of
from ags1.support.exit_codes import UsageError
from tests.cli.conftest import make_tree


def expand_all(patterns: list[str], **options: Any) -> list[cli_paths.Found]:
    return cli_paths.expand(patterns, argparse.Namespace(), **options)


def expand(patterns: list[str], **options: Any) -> list[tuple[str, str]]:
    """What the patterns stand for, without the sizes that listings tell."""
    return [(found.path, found.name) for found in expand_all(patterns, **options)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a few files."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c.ags1", "d.ags1"):
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def pairs(
    *sources: str, target: str, encrypting: bool = True, files_from: str | None = None, **options: bool
) -> list[Job]:
    """What `ags1 encrypt` or `decrypt` would do."""
    values = {"json": False, "overwrite": False, **options}
    found = argparse.Namespace(sources=list(sources), target=target, files_from=files_from, **values)
    return pair_up(found, found, encrypting=encrypting)


# -- which files ---------------------------------------------------------------------------------------------


def test_names_are_themselves_in_order_each_once(here: Path) -> None:
    assert expand(["b", "a", "b", "missing"]) == [("b", "b"), ("a", "a"), ("missing", "missing")]


def test_a_glob_stands_for_the_sorted_files_that_match(here: Path) -> None:
    (here / "directory").mkdir()
    assert expand(["?"]) == [("a", "a"), ("b", "b")]
    assert expand(["*.ags1", "d*"]) == [("c.ags1", "c.ags1"), ("d.ags1", "d.ags1")]


def test_a_glob_may_go_down_directories(here: Path) -> None:
    make_tree(here)
    assert [path for path, _ in expand(["tree/**/*.txt"])] == ["tree/a.txt", "tree/sub/a.txt"]


def test_a_name_with_glob_characters_that_exists_is_itself(here: Path) -> None:
    (here / "[a]*").write_bytes(b"x")
    assert expand(["[a]*"]) == [("[a]*", "[a]*")]


def test_a_glob_that_matches_nothing_is_an_error(here: Path) -> None:
    with pytest.raises(UsageError, match=r"no file matches \*\.avro"):
        expand(["*.avro"])


def test_a_directory_stands_for_the_files_below_it_by_their_paths(here: Path) -> None:
    contents = make_tree(here)
    found = expand(["tree/"])
    assert {name for _, name in found} == set(contents)
    assert found[0] == ("tree/a.txt", "a.txt")
    assert expand(["tree"]) == expand([str(Path("tree"))])


def test_a_directory_is_narrowed_by_a_suffix(here: Path) -> None:
    assert expand(["."], only_suffix=".ags1") == [("./c.ags1", "c.ags1"), ("./d.ags1", "d.ags1")]


def test_an_empty_directory_is_an_error(here: Path) -> None:
    (here / "empty").mkdir()
    with pytest.raises(UsageError, match="there are no files below empty"):
        expand(["empty"])
    with pytest.raises(UsageError, match=r"there are no \.ags1 files below empty"):
        expand(["empty"], only_suffix=".ags1")


def test_unfinished_outputs_are_left_out(here: Path) -> None:
    (here / "tree").mkdir()
    (here / "tree/.x.0123.ags1-tmp").write_bytes(b"half")
    (here / "tree/x").write_bytes(b"whole")
    assert expand(["tree"]) == [("tree/x", "x")]


def test_no_link_in_a_directory_is_followed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_tree(here)
    whole = expand(["tree"])
    (here / "tree/link").symlink_to("a.txt")
    (here / "tree/up").symlink_to("..")
    (here / "tree/dangling").symlink_to("nowhere")
    assert expand(["tree"]) == whole
    assert sorted(capsys.readouterr().err.splitlines()) == [
        f"ags1: warning: tree/{name} is left out: it is a link, which is not followed"
        for name in ("dangling", "link", "up")
    ]
    # What is named itself is meant.
    assert expand(["tree/link"]) == [("tree/link", "link")]


def test_pipes_and_sockets_in_a_tree_are_left_out_and_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_tree(here)
    os.mkfifo(here / "tree/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("tree/socket")
        names = {name for _, name in expand(["tree"])}
    assert not {"pipe", "socket"} & names
    told = capsys.readouterr().err
    assert "ags1: warning: tree/pipe is left out: it is a pipe, a socket or a device\n" in told
    assert "tree/socket is left out" in told


def test_a_directory_that_cannot_be_read_is_an_error_and_not_passed_over(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(here)
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(PermissionError, match="Permission denied"):
        expand(["tree"])


def test_urls_stand_for_files_directories_and_patterns_as_paths_do() -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("a.ags1", "b.txt", "sub/c.ags1"):
        memory.pipe_file(f"/paths/{name}", b"12")
    root = "memory://paths"
    assert expand_all([f"{root}/a.ags1", "-"]) == [(f"{root}/a.ags1", "a.ags1", 2), ("-", "", None)]
    assert expand([f"{root}/*.ags1"]) == [(f"{root}/a.ags1", "a.ags1")]
    assert [name for _, name in expand([f"{root}/**/*.ags1"])] == ["a.ags1", "c.ags1"]
    for directory in (root, f"{root}/"):
        below = expand_all([directory], only_suffix=".ags1")
        assert [(found.name, found.size) for found in below] == [("a.ags1", 2), ("sub/c.ags1", 2)]
    for nothing in (f"{root}/*.csv", f"{root}/sub/*.txt"):
        with pytest.raises(UsageError, match="no file matches"):
            expand([nothing])
    with pytest.raises(FileNotFoundError):
        expand([f"{root}/missing"])


@pytest.mark.timeout(60)
def test_many_names_take_time_in_proportion(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    isdir = os.path.isdir

    def count(path: str) -> bool:
        nonlocal calls
        calls += 1
        return isdir(path)

    monkeypatch.setattr("os.path.isdir", count)
    assert len(pairs(*(f"file-{index}" for index in range(2000)), target="out")) == 2000
    assert calls < 5 * 2000


# -- where to ------------------------------------------------------------------------------------------------


def test_one_file_goes_to_the_target(here: Path) -> None:
    assert pairs("a", target="x") == [Job("a", "x", "x")]
    assert pairs("c.ags1", target="x", encrypting=False) == [Job("c.ags1", "x", "c.ags1")]


def test_one_file_goes_into_an_existing_directory(here: Path) -> None:
    (here / "out").mkdir()
    assert pairs("a", target="out") == [Job("a", "out/a.ags1", "a.ags1")]
    assert pairs("c.ags1", target="out", encrypting=False) == [Job("c.ags1", "out/c", "c.ags1")]


def test_one_file_goes_into_a_new_directory_that_ends_with_a_slash(here: Path) -> None:
    assert pairs("a", target="new/") == [Job("a", "new/a.ags1", "a.ags1")]
    assert not (here / "new").exists()


def test_many_files_go_into_a_directory(here: Path) -> None:
    assert [job.target for job in pairs("a", "b", target="out")] == ["out/a.ags1", "out/b.ags1"]
    assert [job.target for job in pairs("c.ags1", "b", target="out", encrypting=False)] == ["out/c", "out/b"]


@pytest.mark.parametrize("source", ["a*", "tree"])
def test_whether_the_target_is_a_directory_does_not_depend_on_how_many_match(here: Path, source: str) -> None:
    (here / "tree").mkdir()
    (here / "tree/a").write_bytes(b"x")
    assert pairs(source, target="out")[0].target == "out/a.ags1"


def test_a_list_of_one_file_goes_into_a_directory_too(here: Path) -> None:
    (here / "list").write_text("a\n")
    assert pairs(target="out", files_from="list") == [Job("a", "out/a.ags1", "a.ags1")]


def test_a_tree_goes_into_the_same_tree(here: Path) -> None:
    make_tree(here)
    found = [job._replace(size=None) for job in pairs("tree", target="out")]
    assert Job("tree/sub/a.txt", "out/sub/a.txt.ags1", "sub/a.txt.ags1") in found


def test_many_files_for_one_file_are_refused_with_what_the_target_is(here: Path) -> None:
    with pytest.raises(UsageError, match=r"the TARGET \(the last name\) is the file c\.ags1, but many sources need"):
        pairs("a", "b", target="c.ags1")
    with pytest.raises(UsageError, match=r"2 sources cannot go to standard output: give a directory as TARGET$"):
        pairs("a", "b", target="-")
    with pytest.raises(UsageError, match="or use `ags1 cat`"):
        pairs("a", "b", target="-", encrypting=False)
    with pytest.raises(UsageError, match="2 sources cannot go into one object: end the TARGET s3://b/x with /"):
        pairs("a", "b", target="s3://b/x")


def test_two_files_for_one_target_are_refused(here: Path) -> None:
    make_tree(here)
    with pytest.raises(UsageError, match=r"tree/a\.txt and tree/sub/a\.txt would both become out/a\.txt\.ags1"):
        pairs("tree/a.txt", "tree/sub/a.txt", target="out")


def test_a_url_that_ends_with_a_slash_is_a_directory(here: Path) -> None:
    assert [job.target for job in pairs("a", "b", target="s3://b/v/")] == ["s3://b/v/a.ags1", "s3://b/v/b.ags1"]
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/v/a.ags1", b"123")
    found = pairs("memory://v/a.ags1", target="out/", encrypting=False)
    assert found == [Job("memory://v/a.ags1", "out/a", "a.ags1", 3)]


def test_standard_input_needs_a_file_as_target(here: Path) -> None:
    assert pairs("-", target="x.ags1") == [Job("-", "x.ags1", "x.ags1")]
    with pytest.raises(UsageError, match="standard input has no name to have in a directory"):
        pairs("-", target="out/")
    with pytest.raises(UsageError, match="standard input has no name to have in a directory"):
        pairs("-", "a", target="out")


def test_between_pipes_the_encrypted_file_is_named_after_the_other_end() -> None:
    assert pairs("a", target="-")[0].name == "a.ags1"
    assert pairs("-", target="-")[0].name == ""
    assert pairs("-", target="x", encrypting=False)[0].name == "x.ags1"
    assert pairs("-", target="-", encrypting=False)[0].name == ""


def test_what_lies_in_the_target_is_not_encrypted_again(here: Path) -> None:
    make_tree(here)
    (here / "tree/vault").mkdir()
    (here / "tree/vault/old.ags1").write_bytes(b"x")
    assert "vault/old.ags1" not in {name for _, name in expand(["tree"], outside="tree/vault")}
    assert "tree/vault/old.ags1" not in {job.source for job in pairs("tree", target="tree/vault")}


def test_a_source_inside_the_target_is_encrypted(here: Path) -> None:
    make_tree(here)
    assert len(pairs("tree", target=".")) == 4
    assert len(pairs("tree", target="tree")) == 4
    (here / "tree-2").mkdir()
    assert len(pairs("tree", target="tree-2")) == 4


def test_json_beside_data_on_standard_output_is_refused(here: Path) -> None:
    with pytest.raises(UsageError, match="--json and the result cannot both go to standard output"):
        pairs("a", target="-", json=True)


# -- lists ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"# comment\n\n  \na\n", ["a"]),
        (b" a \n", [" a "]),
        (b"a\0#b\nc\0", ["a", "#b\nc"]),
        (b"caf\xe9\n", [os.fsdecode(b"caf\xe9")]),
    ],
)
def test_lists_have_a_name_a_line_or_ended_by_nul(here: Path, data: bytes, names: list[str]) -> None:
    (here / "list").write_bytes(data)
    assert [job.source for job in pairs(target="out", files_from="list")] == names


def test_a_list_may_come_from_standard_input(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    assert [job.source for job in pairs("c.ags1", target="out", files_from="-")] == ["c.ags1", "a", "b"]


def test_a_list_may_have_globs_and_directories(here: Path) -> None:
    make_tree(here)
    (here / "list").write_text("tree/sub\n?\n")
    found = [job.source for job in pairs(target="out", files_from="list")]
    assert found == ["tree/sub/a.txt", "tree/sub/deep/b.bin", "tree/sub/empty", "a", "b"]


def test_an_empty_list_is_an_error(here: Path) -> None:
    (here / "list").write_bytes(b"# nothing\n")
    with pytest.raises(UsageError, match="there are no files in the list list"):
        pairs(target="out", files_from="list")


def test_standard_input_cannot_be_list_and_data() -> None:
    with pytest.raises(UsageError, match="cannot be both a SOURCE and the list"):
        pairs("-", target="out", files_from="-")


# -- sizes ---------------------------------------------------------------------------------------------------


def test_only_regular_files_have_a_size(here: Path) -> None:
    os.mkfifo(here / "pipe")
    assert size_of(Job("a", "", "")) == 1
    assert size_of(Job("missing", "", "")) == 0
    assert size_of(Job("pipe", "", "")) is None
    assert size_of(Job("-", "", "")) is None
    assert size_of(Job("s3://b/x", "", "")) is None


def test_names_of_urls_and_paths() -> None:
    assert cli_paths.base_name("s3://bucket/dir/file.ags1") == "file.ags1"
    assert cli_paths.base_name("s3://bucket/dir/") == "dir"
    assert cli_paths.base_name("dir/file") == "file"
