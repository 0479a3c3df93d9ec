"""What a dataset promises to its users: names, incremental runs, one call to the KMS, several users at once."""

from __future__ import annotations

import os
import random
import re
import socket
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.support.secrets import shows_secret
from tests.checks import KEY, in_threads, pattern
from tests.dataset.conftest import CONTENTS, MASTER, OTHER, CountingKms, fresh, kinds, plain_of, read_tree, write_tree

# -- round trips -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_every_file_comes_back_under_its_name(
    raw: Path, tmp_path: Path, client: CountingKms, threads: int | None
) -> None:
    write_tree(raw, {"large": pattern(34 << 20) if threads is None else pattern(2 << 20)})
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake", threads=threads) as vault:
        assert vault.decrypt(tmp_path / "back", threads=threads).done == len(CONTENTS) + 1
        assert vault.verify(threads=threads).ok
        assert [entry.path for entry in vault.files] == sorted(read_tree(raw), key=os.fsencode)
        stored = {part.name for entry in vault.files for part in entry.parts}
    assert read_tree(tmp_path / "back") == read_tree(raw)
    assert {path for path in read_tree(tmp_path / "vault") if not path.startswith("_ags1/")} == stored


def test_unusual_names_survive(tmp_path: Path, client: CountingKms) -> None:
    names = [
        "new\nline",
        "tab\t",
        'quote"',
        "back\\slash",
        "ünïcödé",
        "日本語",
        " ",
        "~",
        "-",
        "a::b",
        "s3:",
        "#?%",
        "x" * 255,
    ]
    names += [os.fsdecode(b"not-utf8-\xff\xfe"), os.fsdecode(b"\x80/\x81"), "\U0001f600", "deep/" * 60 + "file"]
    raw = write_tree(tmp_path / "raw", {name: name.encode("utf-8", "surrogateescape") for name in names})
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        assert len(vault.files) == len(names)
        for name in names:
            assert vault.open(name).read() == os.fsencode(name)
            assert vault.files[os.fsencode(name)].path == name
        assert vault.verify().ok
        vault.decrypt(tmp_path / "back")
        (raw / names[0]).write_bytes(b"changed")
        assert vault.add(raw).done == 1
    write_tree(tmp_path / "back", {names[0]: b"changed"})
    assert read_tree(tmp_path / "back") == read_tree(raw)


def test_links_special_files_and_empty_directories_are_treated_as_documented(
    tmp_path: Path, client: CountingKms
) -> None:
    raw = write_tree(tmp_path / "raw", {"file": b"data", "dir/inner": b"inner"})
    (raw / "empty").mkdir()
    (raw / "link").symlink_to("file")
    (raw / "dirlink").symlink_to("dir")
    (raw / "dangling").symlink_to("nowhere")
    os.mkfifo(raw / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(raw)
        try:
            listener.bind("socket")
        finally:
            os.chdir(before)
        with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
            assert plain_of(vault) == {"file": b"data", "dir/inner": b"inner"}
            assert vault.report is not None
            assert dict(vault.report.skipped) == {
                **dict.fromkeys(("dirlink", "link", "dangling"), "is a link, which is not followed"),
                "pipe": "is a pipe, a socket or a device",
                "socket": "is a pipe, a socket or a device",
            }
            assert vault.report.ok
            assert sorted(vault.report.links) == ["dangling", "dirlink", "link"]
    # What is named itself is meant.
    with dataset.encrypt(raw / "link", tmp_path / "one", client, "lake") as one:
        assert plain_of(one) == {"link": b"data"}


def test_temporary_files_of_ours_are_left_out_of_a_source_and_named_in_a_dataset(vault: Path, raw: Path) -> None:
    name = ".a.txt.0123456789ab.ags1-tmp"
    write_tree(raw, {name: b"half a file"})
    write_tree(vault, {f"sub/{name}": b"half a file"})
    with dataset.open(vault, fresh()) as opened:
        assert opened.add(raw).skipped == [(name, "is a temporary file of an interrupted ags1")]
        assert kinds(opened.verify()) == {f"sub/{name}": "leftover"}


def test_patterns_choose_files(raw: Path, tmp_path: Path, client: CountingKms) -> None:
    def chosen(**patterns: Any) -> set[str]:
        target = tmp_path / f"vault-{random.random()}"
        with dataset.encrypt(raw, target, client, "lake", **patterns) as vault:
            return {entry.path for entry in vault.files}

    assert chosen(include="*.txt") == {"a.txt", "sub/a.txt"}
    assert chosen(include=["*.txt", "*.bin"], exclude="deep") == {"a.txt", "sub/a.txt"}
    assert chosen(include="year=*/*.parquet") == {path for path in CONTENTS if path.startswith("year")}
    assert chosen(exclude=["sub*", "year=2026/"]) == {"a.txt", "empty"}
    with pytest.raises(TypeError, match="include must be"):
        chosen(include=[1])


def test_a_single_file_and_a_prefix(raw: Path, vault: Path, tmp_path: Path, client: CountingKms) -> None:
    with dataset.open(vault, client) as opened:
        assert opened.add(raw / "a.txt", prefix="some/where").done == 1
        assert opened.open("some/where/a.txt").read() == b"first"
        assert opened.add(raw, prefix="again").done == len(CONTENTS)
        assert opened.version == 3
        assert opened.verify().ok
    with dataset.encrypt(raw / "a.txt", tmp_path / "one", client, "lake") as one:
        assert plain_of(one) == {"a.txt": b"first"}


def test_an_empty_source_makes_an_empty_dataset(tmp_path: Path, client: CountingKms) -> None:
    (tmp_path / "raw").mkdir()
    with dataset.encrypt(tmp_path / "raw", tmp_path / "vault", client, "lake") as vault:
        assert (len(vault.files), list(vault.files), vault.version) == (0, [], 1)
        assert "x" not in vault.files
        assert list(vault.files.children()) == []
        assert vault.verify().ok
        assert vault.add(write_tree(tmp_path / "more", {"x": b"x"})).done == 1
        assert vault.open("x").read() == b"x"


def test_plaintext_never_goes_into_the_dataset_from_a_target_above_it(tmp_path: Path, client: CountingKms) -> None:
    write_tree(tmp_path / "raw", {"a": b"one", "vault/a": b"two"})
    with dataset.encrypt(tmp_path / "raw", tmp_path / "vault", client, "lake") as vault:
        before = read_tree(tmp_path / "vault")
        with pytest.raises(ValueError, match="is above the dataset, which has files below vault/"):
            vault.decrypt(tmp_path)
        assert read_tree(tmp_path / "vault") == before
        assert not (tmp_path / "a").exists()
        assert vault.verify().ok


# -- incremental runs --------------------------------------------------------------------------------------------------


def identity(status: os.stat_result) -> tuple[int, int]:
    # A number of an inode that was freed is given again.
    return status.st_ino, status.st_mtime_ns


def test_a_changed_time_alone_is_a_change(raw: Path, vault: Path, client: CountingKms) -> None:
    os.utime(raw / "a.txt", ns=(1, 1))
    with dataset.open(vault, client) as opened:
        assert opened.add(raw, dry_run=True).paths == ["a.txt"]
        assert opened.version == 1
        assert opened.add(raw).done == 1
        assert opened.files["a.txt"].source.mtime_ns == 1  # type: ignore[union-attr]


def test_a_preview_tries_the_master_key(raw: Path, tmp_path: Path, client: CountingKms) -> None:
    with pytest.raises(ags1.KeyAccessError, match="misspelt"):
        dataset.preview(raw, tmp_path / "vault", client, "misspelt")
    assert not (tmp_path / "vault").exists()


def test_a_preview_writes_nothing(raw: Path, tmp_path: Path, client: CountingKms) -> None:
    report = dataset.preview(raw, tmp_path / "vault", client, "lake")
    assert (report.done, client.wraps, client.unwraps) == (len(CONTENTS), 1, 1)
    assert not (tmp_path / "vault").exists()


def test_a_file_of_which_the_new_version_fails_keeps_its_old_one(raw: Path, vault: Path, client: CountingKms) -> None:
    (raw / "a.txt").write_bytes(ags1.encrypt(b"x", KEY))
    (raw / "sub/a.txt").write_bytes(b"changed")
    with dataset.open(vault, client) as opened:
        report = opened.add(raw, on_error="collect")
        assert [path for path, _ in report.errors] == ["a.txt"]
        assert plain_of(opened) == {**CONTENTS, "sub/a.txt": b"changed"}


def test_progress_counts_all_bytes_and_an_exception_in_it_stops_the_run(
    raw: Path, tmp_path: Path, client: CountingKms
) -> None:
    write_tree(raw, {"large": pattern(33 << 20)})
    total = sum(len(data) for data in read_tree(raw).values())
    calls: list[tuple[int, int | None]] = []
    vault = dataset.encrypt(raw, tmp_path / "vault", client, "lake", progress=lambda *call: calls.append(call))
    assert calls[0] == (0, total)
    assert calls[-1] == (total, total)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    for function in (vault.verify, lambda progress: vault.decrypt(tmp_path / "back", progress=progress)):
        calls.clear()
        function(progress=lambda *call: calls.append(call))
        assert calls[-1] == (total, total)

    def stop(done: int, total: int | None) -> None:
        if done > 1 << 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dataset.encrypt(raw, tmp_path / "stopped", client, "lake", progress=stop)
    with dataset.encrypt(raw, tmp_path / "stopped", client, "lake") as again:
        assert again.verify().ok


def test_a_second_run_writes_only_what_is_new_or_changed(raw: Path, vault: Path, client: CountingKms) -> None:
    before = read_tree(vault)
    with dataset.encrypt(raw, vault, client, "lake") as again:
        assert again.report is not None
        assert (again.report.done, again.report.unchanged, again.report.changed) == (0, len(CONTENTS), False)
        assert again.version == 1
    assert read_tree(vault) == before
    (raw / "sub/a.txt").write_bytes(b"changed")
    (raw / "a.txt").unlink()
    write_tree(raw, {"zz": b"new"})
    with dataset.encrypt(raw, vault, client, "lake") as again:
        assert again.report is not None
        assert (again.report.done, again.report.unchanged, again.report.others) == (2, len(CONTENTS) - 2, 1)
        assert plain_of(again) == {**CONTENTS, "sub/a.txt": b"changed", "zz": b"new"}
        assert again.version == 2
    after = read_tree(vault)
    assert {path: after[path] for path in before} == before
    # Two objects, the version and its manifest.
    assert len(after) == len(before) + 4


def test_files_that_the_source_has_no_more_go_on_request(raw: Path, vault: Path, client: CountingKms) -> None:
    (raw / "a.txt").unlink()
    with dataset.encrypt(raw, vault, client, "lake", delete=True, exclude="sub") as again:
        assert again.report is not None
        # What the patterns leave out is not looked at.
        assert again.report.removed == 1
        assert plain_of(again) == {path: data for path, data in CONTENTS.items() if path != "a.txt"}
    with dataset.open(vault, client, version=1) as old:
        assert plain_of(old) == CONTENTS


@pytest.mark.parametrize("damage", ["missing", "cut", "longer", "a directory"])
def test_a_run_finds_what_is_missing_or_of_another_length_and_encrypts_it_again(
    damage: str, raw: Path, vault: Path, client: CountingKms
) -> None:
    with dataset.open(vault, client) as opened:
        place = vault / opened.files["sub/a.txt"].parts[0].name
    data = place.read_bytes()
    place.unlink()
    if damage == "a directory":
        place.mkdir()
    elif damage != "missing":
        place.write_bytes(data[:-1] if damage == "cut" else data + b"x")
    with dataset.encrypt(raw, vault, client, "lake") as again:
        assert again.report is not None
        assert (again.report.done, again.report.repaired, again.report.unchanged) == (1, 1, len(CONTENTS) - 1)
        assert plain_of(again) == CONTENTS


def test_a_source_replaced_by_one_of_equal_size_and_time_is_noticed(
    raw: Path, vault: Path, client: CountingKms
) -> None:
    status = (raw / "a.txt").stat()
    (raw / "other").write_bytes(b"FIRST")
    os.utime(raw / "other", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(raw / "other", raw / "a.txt")
    with dataset.encrypt(raw, vault, client, "lake") as again:
        assert again.open("a.txt").read() == b"FIRST"


def test_a_run_that_failed_is_resumed(raw: Path, tmp_path: Path, client: CountingKms) -> None:
    (raw / "zzz").write_bytes(ags1.encrypt(b"x", KEY))
    with pytest.raises(ags1.AlreadyEncryptedError):
        dataset.encrypt(raw, tmp_path / "vault", client, "lake", threads=1)
    with pytest.raises(FileNotFoundError, match="its first run was not completed"):
        dataset.open(tmp_path / "vault", client)
    (raw / "zzz").unlink()
    (raw / "sub/a.txt").write_bytes(b"changed since")
    before = {path for path in read_tree(tmp_path / "vault") if not path.startswith("_ags1")}
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        assert plain_of(vault) == {**CONTENTS, "sub/a.txt": b"changed since"}
        assert vault.report is not None
        assert vault.report.resumed == len(CONTENTS) - 1
        assert {part.name for entry in vault.files for part in entry.parts} & before
        assert not list((tmp_path / "vault/_ags1/runs").iterdir())
        assert vault.verify().findings[0].code == "unreferenced"
        vault.expire(grace=0)
        assert vault.verify().ok


def test_modes_are_kept(raw: Path, tmp_path: Path, client: CountingKms) -> None:
    large = write_tree(raw, {"large": pattern(2 << 20)}) / "large"
    for path, mode in ((raw / "a.txt", 0o600), (large, 0o600), (raw / "sub/a.txt", 0o644)):
        path.chmod(mode)
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        vault.decrypt(tmp_path / "back")
    modes = {path: (tmp_path / "back" / path).stat().st_mode & 0o777 for path in ("a.txt", "large", "sub/a.txt")}
    assert modes == {"a.txt": 0o600, "large": 0o600, "sub/a.txt": 0o644}


# -- changes without a source ------------------------------------------------------------------------------------------


def test_an_unchanged_dataset_is_looked_at_once_in_each_directory(
    tmp_path: Path, client: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write_tree(tmp_path / "raw", {f"{index}{name}": b"" for index in range(9) for name in ("", ".d/x", ".d/y/z")})
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake"):
        pass
    listed: list[str] = []
    given = os.scandir

    def scandir(path: Any) -> Any:
        listed.append(str(path))
        return given(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        assert vault.report is not None
        assert vault.report.unchanged == 27
    # Its files, and directories that come between them.
    looked_at = [each for each in listed if each.startswith(str(tmp_path / "vault")) and "_ags1" not in each]
    assert len(looked_at) == len(set(looked_at)) == 19


def test_files_and_directories_are_removed_in_a_new_version(vault: Path, client: CountingKms) -> None:
    before = {path for path in read_tree(vault) if not path.startswith("_ags1")}
    with dataset.open(vault, client) as opened:
        assert opened.rm("a.txt", "sub/deep").removed == 2
        assert opened.rm("year=2026").removed == 2
        assert plain_of(opened) == {each: CONTENTS[each] for each in ("empty", "sub/a.txt", "sub.d/c")}
        assert {path for path in read_tree(vault) if not path.startswith("_ags1")} == before
        assert opened.version == 3
        assert list(opened.changed_since(1)) == []
        with pytest.raises(FileNotFoundError, match="no such file or directory"):
            opened.rm("empty", "nothing")
        with pytest.raises(ValueError, match="name the files"):
            opened.rm("")
        assert [each.version for each in opened.versions()] == [1, 2, 3]
        report = opened.expire(older_than=None, grace=0)
        assert (report.versions, report.kept) == ([1, 2], [3, 4])
        assert opened.verify().ok
        assert len(opened.files) == 3
        with pytest.raises(FileNotFoundError, match="no version 1"):
            dataset.open(vault, client, version=1)


def test_damage_is_repaired_from_a_source_that_is_unchanged(raw: Path, vault: Path, client: CountingKms) -> None:
    with dataset.open(vault, client) as opened:
        names = {entry.path: vault / entry.parts[0].name for entry in opened.files}
        data = bytearray(names["sub/deep/b.bin"].read_bytes())
        data[30_000] ^= 1
        names["sub/deep/b.bin"].write_bytes(data)
        names["a.txt"].unlink()
        names["sub.d/c"].write_bytes(b"AGS1")
        (raw / "sub.d/c").write_bytes(b"changed since")
        names["empty"].unlink()
        (raw / "empty").unlink()
        assert sorted(opened.repair(raw, dry_run=True).paths) == ["a.txt", "sub/deep/b.bin"]
        report = opened.repair(raw)
        assert (report.done, report.repaired) == (2, 2)
        assert sorted(path for path, _ in report.errors) == ["empty", "sub.d/c"]
        assert kinds(opened.verify()).keys() >= {"empty", "sub.d/c"}
        assert opened.open("a.txt").read() == b"first"
        assert opened.open("sub/deep/b.bin").read() == CONTENTS["sub/deep/b.bin"]


def test_text_is_read_as_the_builtin_reads_it(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"latin": "é\r\nü".encode("latin-1")})
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        with vault.open("latin", "r", encoding="latin-1") as text:
            assert text.read() == "é\nü"
        with vault.open("latin", "rt", encoding="latin-1", newline="") as text:
            assert text.readlines() == ["é\r\n", "ü"]
        with pytest.raises(ValueError, match="use add to change a dataset"):
            vault.open("latin", "wb")


# -- the master key ----------------------------------------------------------------------------------------------------


def test_a_new_dataset_needs_a_master_key(raw: Path, tmp_path: Path) -> None:
    for key_id in (None, ""):
        with pytest.raises(ValueError, match="a new dataset needs a master key"):
            dataset.encrypt(raw, tmp_path / "vault", fresh(), key_id)
    assert not (tmp_path / "vault").exists()


def test_without_its_master_key_nothing_of_a_dataset_opens(vault: Path) -> None:
    """As after the key of a tenant was destroyed."""
    with pytest.raises(ags1.KeyAccessError, match="under master key 'lake'"):
        dataset.open(vault, CountingKms("other"))


# -- pins ------------------------------------------------------------------------------------------------------------


def test_a_roll_back_and_a_substitute_are_noticed_by_who_pins(raw: Path, vault: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(vault, tmp_path / "older")
    with dataset.open(vault, fresh()) as opened:
        opened.rm("a.txt")
        pins = {"expected_version": opened.version, "expected_uuid": opened.uuid, "expected_digest": opened.digest}
    dataset.encrypt(raw, tmp_path / "other", fresh(), "lake").close()
    with dataset.open(tmp_path / "other", fresh()) as other:
        other.rm("empty")
    dataset.open(vault, fresh(), key_id="lake", **pins).close()  # type: ignore[arg-type]
    caught_by = {"older": {"expected_version", "expected_digest"}, "other": {"expected_uuid", "expected_digest"}}
    for place, caught in caught_by.items():
        for name, value in pins.items():
            if name in caught:
                with pytest.raises(ags1.AuthenticationError, match="is expected"):
                    dataset.open(tmp_path / place, fresh(), **{name: value})  # type: ignore[arg-type]
            else:
                dataset.open(tmp_path / place, fresh(), **{name: value}).close()  # type: ignore[arg-type]
    with pytest.raises(ags1.KeyAccessError, match="is expected"):
        dataset.open(vault, fresh(), key_id="other")


# -- the KMS -----------------------------------------------------------------------------------------------------------


def test_one_call_to_the_kms_opens_any_number_of_files(tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", {f"{i:04}": b"%d" % i for i in range(1000)})
    client = fresh()
    dataset.encrypt(raw, tmp_path / "vault", client, "lake").close()
    assert (client.wraps, client.unwraps) == (1, 1)
    client = fresh()
    with dataset.open(tmp_path / "vault", client) as vault:
        for i in range(0, 1000, 7):
            assert vault.open(f"{i:04}").read() == b"%d" % i
        assert (client.wraps, client.unwraps) == (0, 1)
        (raw / "0000").write_bytes(b"changed")
        vault.add(raw)
        assert (client.wraps, client.unwraps) == (0, 1)


def test_a_rewrap_moves_to_another_service_and_changes_no_file(vault: Path) -> None:
    before = read_tree(vault)
    other = CountingKms(lake=OTHER)
    with dataset.open(vault, fresh()) as opened:
        dry = opened.rewrap("lake", other, dry_run=True)
        assert dry.dry_run
        with dataset.open(vault, fresh()):
            pass
        report = opened.rewrap("lake", other)
        assert (report.old_key_id, report.new_key_id) == ("lake", "lake")
        assert plain_of(opened) == CONTENTS
        assert opened.version == 2
        assert report.older_versions == 1
    assert {path: data for path, data in read_tree(vault).items() if path in before} == before
    with dataset.open(vault, CountingKms(lake=OTHER)) as opened:
        assert plain_of(opened) == CONTENTS
    with pytest.raises(ags1.KeyAccessError):
        dataset.open(vault, CountingKms("lake"))


def test_a_rewrap_that_the_service_refuses_changes_nothing(vault: Path) -> None:
    before = read_tree(vault)
    with dataset.open(vault, fresh()) as opened:
        with pytest.raises(ags1.KeyAccessError):
            opened.rewrap("unknown")
        assert read_tree(vault) == before
        assert plain_of(opened) == CONTENTS


def test_each_file_has_key_metadata_that_any_reader_takes(vault: Path) -> None:
    with dataset.open(vault, fresh()) as opened:
        seen = set()
        for entry in opened.files:
            metadata = opened.key_metadata(entry.path)
            seen.add((bytes(metadata.encryption_key), metadata.aad_prefix))
            (part,) = entry.parts
            assert metadata.file_length == (vault / part.name).stat().st_size
            with ags1.open(vault / part.name, key_metadata=metadata.encode()) as reader:
                assert reader.read() == CONTENTS[entry.path]
                assert reader.length_trusted
        assert len(seen) == len(CONTENTS)
        assert all(len(prefix) == 16 for _, prefix in seen if prefix)


# -- readers and writers at once --------------------------------------------------------------------------------------


def test_a_reader_keeps_its_version_until_that_is_expired(raw: Path, vault: Path) -> None:
    with dataset.open(vault, fresh()) as old, dataset.open(vault, fresh()) as opened:
        (raw / "a.txt").write_bytes(b"another length")
        opened.add(raw)
        assert old.open("a.txt").read() == b"first"
        opened.expire(older_than=None, grace=0)
        assert old.open("sub/a.txt").read() == b"second"
        with pytest.raises(FileNotFoundError, match="has version 3 by now, and version 1 was opened: open it again"):
            old.open("a.txt")
        assert old.refresh()
        assert old.open("a.txt").read() == b"another length"
        assert not old.refresh()


def test_two_writers_at_once_both_commit_and_see_where_they_cannot(raw: Path, vault: Path, tmp_path: Path) -> None:
    more = write_tree(tmp_path / "more", {"b": b"other", "a.txt": b"theirs"})
    (raw / "new").write_bytes(b"mine")
    met = []

    def progress(done: int, total: int | None) -> None:
        if not met:
            met.append(True)
            with dataset.open(vault, fresh()) as other:
                other.add(more)

    with dataset.open(vault, fresh()) as opened:
        assert opened.add(raw, progress=progress).version == 3
        assert plain_of(opened) == {**CONTENTS, "new": b"mine", "b": b"other", "a.txt": b"theirs"}
        met.clear()
        (more / "a.txt").write_bytes(b"theirs again")
        (raw / "a.txt").write_bytes(b"mine too")
        with pytest.raises(ags1.ConflictError, match=r"another writer has changed a\.txt meanwhile"):
            opened.add(raw, progress=progress)
        # Nothing is lost, and nothing is encrypted twice.
        opened.refresh()
        assert opened.open("a.txt").read() == b"theirs again"
        assert opened.add(raw).resumed == 1
        assert opened.open("a.txt").read() == b"mine too"


def test_a_dataset_is_read_by_many_threads_at_once(vault: Path) -> None:
    with dataset.open(vault, fresh()) as opened:

        def read(seed: int) -> None:
            for path in random.Random(seed).choices(sorted(CONTENTS), k=60):
                with opened.open(path) as reader:
                    assert reader.read() == CONTENTS[path]

        in_threads([lambda seed=seed: read(seed) for seed in range(6)])  # type: ignore[misc]


def test_each_run_and_commit_says_a_line_without_keys(
    raw: Path, tmp_path: Path, client: CountingKms, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "ags1.dataset"), dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        vault.rm("a.txt")
        vault.verify()
        vault.decrypt(tmp_path / "plain")
        vault.expire(older_than=None, grace=0)
        secrets = [MASTER] + [bytes(vault.key_metadata(entry.path).encryption_key) for entry in vault.files]
    for said in (
        "run .* begins on version 0", "encrypt made version 1 of 7 files", "run .* encrypted 7 files",
        "rm made version 2", "version 2 verified: 6 files", "version 2 decrypted to .*: 6 files",
        "expire made version 3",
        "expire removed 1 versions and",
    ):  # fmt: skip
        assert re.search(said, caplog.text), said
    assert not any(shows_secret(caplog.text, each) for each in secrets)


def test_portions_of_files_have_the_sizes_of_the_entries_and_are_found_by_their_first(
    tmp_path: Path, client: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ags1.dataset.manifests.FAN_OUT", 8)
    for number in range(100):
        path = tmp_path / "raw" / f"{number % 3}" / f"{number:02}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(number * 1000))
    (tmp_path / "raw/1/none").mkdir()
    with dataset.encrypt(tmp_path / "raw", tmp_path / "vault", client, "lake") as made:
        expected = [(each.path, each.plaintext_length, each.file_length) for each in made.files]
    with dataset.open(tmp_path / "vault", client) as opened:
        leaves = list(opened.files.leaves())
        assert len(leaves) > 8
        sizes = [size for leaf in leaves for size in leaf.sizes()]
        assert [size for size in sizes if not size[0].endswith("/")] == expected
        directories = [size for size in sizes if size[0].endswith("/")]
        assert directories == [(path, 0, 0) for path in ("0/", "1/", "1/none/", "2/")]
        assert [leaf.first for leaf in leaves] == [leaf.sizes()[0][0] for leaf in leaves]
        assert sum(leaf.file_count for leaf in leaves) == 100
        assert sum(leaf.plaintext_bytes for leaf in leaves) == opened.plaintext_bytes
        below = [size[0] for leaf in opened.files.leaves("1") for size in leaf.sizes() if size[0].startswith("1/")]
        assert below == sorted(path for path, _, _ in sizes if path.startswith("1/"))
