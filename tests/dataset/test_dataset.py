"""What a dataset promises to its users: names, incremental runs, one call to the KMS, clear refusals."""

from __future__ import annotations

import copy
import errno
import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.dataset import _control, _manifest
from tests.checks import in_threads, pattern, run_python
from tests.dataset.conftest import (
    CONTENTS,
    OTHER,
    CountingKms,
    assert_clean,
    control,
    fresh,
    kinds,
    plain_of,
    read_tree,
    write_tree,
)

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
    assert read_tree(tmp_path / "back") == read_tree(raw)
    assert {path for path in read_tree(tmp_path / "vault") if not path.startswith("_ags1/")} == set(read_tree(raw))
    assert_clean(tmp_path / "vault")


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
    os.mkfifo(raw / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(raw)
        try:
            listener.bind("socket")
        finally:
            os.chdir(before)
        with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
            assert plain_of(vault) == {"file": b"data", "link": b"data", "dir/inner": b"inner"}
            assert vault.report is not None
            assert dict(vault.report.skipped) == {
                "dirlink": "is a link to a directory",
                "pipe": "is a pipe, a socket or a device",
                "socket": "is a pipe, a socket or a device",
            }
            assert vault.report.ok
    (raw / "dangling").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match="dangling"):
        dataset.encrypt(raw, tmp_path / "vault", client, "lake")
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake", on_error="collect") as vault:
        assert vault.report is not None
        assert [path for path, _ in vault.report.errors] == ["dangling"]


def test_temporary_files_of_ours_are_left_out_of_a_source_and_named_in_a_dataset(vault: Path, raw: Path) -> None:
    name = ".a.txt.0123456789ab.ags1-tmp"
    write_tree(raw, {name: b"half a file"})
    write_tree(vault, {f"sub/{name}": b"half a file"})
    with dataset.open(vault, fresh()) as opened:
        assert opened.add(raw).skipped == [(name, "is a temporary file of an interrupted ags1")]
        assert kinds(opened.verify()) == {f"sub/{name}": "leftover"}


@pytest.mark.parametrize("unnamed", [True, False])
def test_files_are_published_on_any_file_system(
    tmp_path: Path, client: CountingKms, monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    real = os.open

    def without(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE and not unnamed:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)
        return real(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", without)
    raw = write_tree(tmp_path / "raw", CONTENTS)
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake", durable=True) as vault:
        (raw / "a.txt").write_bytes(b"changed")
        assert vault.add(raw, durable=True).done == 1
        for _ in range(2):
            vault.decrypt(tmp_path / "back", durable=True)
        assert vault.verify().ok
    assert read_tree(tmp_path / "back") == {**CONTENTS, "a.txt": b"changed"}
    assert_clean(tmp_path / "vault")


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
        before = (tmp_path / "vault" / "a").read_bytes()
        with pytest.raises(ValueError, match="is above the dataset, which has files below vault/"):
            vault.decrypt(tmp_path)
        assert (tmp_path / "vault" / "a").read_bytes() == before
        assert not (tmp_path / "a").exists()
        assert vault.verify().ok


# -- incremental runs --------------------------------------------------------------------------------------------------


def identity(status: os.stat_result) -> tuple[int, int]:
    # A number of an inode that was freed is given again.
    return status.st_ino, status.st_mtime_ns


def test_a_second_run_touches_only_what_is_new_or_changed(raw: Path, vault: Path, client: CountingKms) -> None:
    before = {path: path.stat() for path in vault.rglob("*") if path.is_file()}
    with dataset.encrypt(raw, vault, client, "lake") as again:
        assert again.report is not None
        assert (again.report.done, again.report.unchanged, again.report.changed) == (0, len(CONTENTS), False)
        assert again.version == 1
    names = {path for path in before if path.name != "lock"}
    assert {path: identity(path.stat()) for path in names} == {path: identity(before[path]) for path in names}
    (raw / "sub/a.txt").write_bytes(b"changed")
    (raw / "a.txt").unlink()
    write_tree(raw, {"zz": b"new"})
    with dataset.encrypt(raw, vault, client, "lake") as again:
        assert again.report is not None
        assert (again.report.done, again.report.unchanged, again.report.others) == (2, len(CONTENTS) - 2, 1)
        assert plain_of(again) == {**CONTENTS, "sub/a.txt": b"changed", "zz": b"new"}
        assert again.version == 2
    touched = {
        path.relative_to(vault).as_posix()
        for path in names
        if path.exists() and identity(path.stat()) != identity(before[path])
    }
    assert touched == {"sub/a.txt", "_ags1/metadata.json"}


def test_a_changed_time_alone_is_a_change(raw: Path, vault: Path, client: CountingKms) -> None:
    os.utime(raw / "a.txt", ns=(1, 1))
    with dataset.open(vault, client) as opened:
        assert opened.add(raw, dry_run=True).paths == ["a.txt"]
        assert opened.version == 1
        assert opened.add(raw).done == 1
        assert opened.files["a.txt"].source_mtime_ns == 1


def test_a_preview_writes_nothing(raw: Path, tmp_path: Path, client: CountingKms) -> None:
    report = dataset.preview(raw, tmp_path / "vault", client, "lake")
    assert (report.done, client.wraps, client.unwraps) == (len(CONTENTS), 0, 0)
    assert not (tmp_path / "vault").exists()


def test_a_file_of_which_the_new_version_fails_keeps_its_old_one(raw: Path, vault: Path, client: CountingKms) -> None:
    (raw / "a.txt").unlink()
    (raw / "a.txt").symlink_to("nowhere")
    (raw / "sub/a.txt").write_bytes(b"changed")
    with dataset.open(vault, client) as opened:
        report = opened.add(raw, on_error="collect")
        assert [path for path, _ in report.errors] == ["a.txt"]
        assert plain_of(opened) == {**CONTENTS, "sub/a.txt": b"changed"}


def test_a_run_that_failed_goes_on_where_it_was(raw: Path, tmp_path: Path, client: CountingKms) -> None:
    (raw / "zzz").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        dataset.encrypt(raw, tmp_path / "vault", client, "lake", threads=1)
    with pytest.raises(FileNotFoundError, match="its first run was not completed"):
        dataset.open(tmp_path / "vault", client)
    (raw / "zzz").unlink()
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        assert plain_of(vault) == CONTENTS


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


# -- the KMS -----------------------------------------------------------------------------------------------------------


def test_one_call_to_the_kms_opens_any_number_of_files(tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", {f"{i:04}": b"%d" % i for i in range(1000)})
    client = fresh()
    dataset.encrypt(raw, tmp_path / "vault", client, "lake").close()
    assert (client.wraps, client.unwraps) == (1, 0)
    client = fresh()
    with dataset.open(tmp_path / "vault", client) as vault:
        for i in range(0, 1000, 7):
            assert vault.open(f"{i:04}").read() == b"%d" % i
        assert (client.wraps, client.unwraps) == (0, 1)
        (raw / "0000").write_bytes(b"changed")
        vault.add(raw)
        assert (client.wraps, client.unwraps) == (0, 1)


def test_a_rewrap_moves_to_another_service_and_changes_no_file(vault: Path) -> None:
    before = {
        path: data for path, data in read_tree(vault).items() if path not in ("_ags1/metadata.json", "_ags1/lock")
    }
    other = CountingKms(lake=OTHER)
    with dataset.open(vault, fresh()) as opened:
        dry = opened.rewrap("lake", other, dry_run=True)
        assert (dry.dry_run, dry.keys) == (True, 1)
        with dataset.open(vault, fresh()):
            pass
        report = opened.rewrap("lake", other)
        assert (report.old_key_id, report.new_key_id, report.keys) == ("lake", "lake", 1)
        assert plain_of(opened) == CONTENTS
        assert opened.version == 1
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
            assert metadata.file_length == (vault / entry.path).stat().st_size
            with ags1.open(vault / entry.path, key_metadata=metadata.encode()) as reader:
                assert reader.read() == CONTENTS[entry.path]
                assert reader.length_trusted
        assert len(seen) == len(CONTENTS)
        assert all(len(prefix) == 16 for _, prefix in seen if prefix)


def test_the_metadata_is_a_key_list_that_iceberg_reads(vault: Path) -> None:
    from ags1.iceberg import EncryptionKeys

    metadata = _control.read_local(str(vault))
    assert metadata is not None
    keys = EncryptionKeys.from_table_metadata({"encryption-keys": metadata.encryption_keys})
    key = keys.unwrap(metadata.manifest_key_id, fresh())
    assert key.file_length == (vault / "_ags1" / metadata.manifest).stat().st_size


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_two_writers_at_once_are_refused_and_the_other_is_named(raw: Path, vault: Path, tmp_path: Path) -> None:
    (raw / "a.txt").write_bytes(b"changed")
    refused = []

    def progress(done: int, total: int | None) -> None:
        if not refused:
            with pytest.raises(BlockingIOError) as caught:
                dataset.encrypt(raw, vault, fresh(), "lake")
            refused.append(str(caught.value))
            code = "import sys; from ags1 import dataset, kms\ntry:\n dataset.encrypt(sys.argv[1], sys.argv[2], "
            code += "kms.MemoryKms({'lake': bytes(32)}), 'lake')\nexcept BlockingIOError as error: print(error)"
            refused.append(run_python(code, str(raw), str(vault)))
            with dataset.open(vault, fresh()) as reader:
                assert reader.version == 1

    with dataset.open(vault, fresh()) as opened:
        opened.add(raw, progress=progress)
        assert opened.version == 2
    for text in refused:
        assert f"process {os.getpid()} on host {os.uname().nodename} is changing this dataset now" in text


def test_a_reader_that_is_open_keeps_its_version_and_says_when_that_is_gone(raw: Path, vault: Path) -> None:
    with dataset.open(vault, fresh()) as old:
        (raw / "a.txt").write_bytes(b"another length")
        with dataset.open(vault, fresh()) as opened:
            opened.add(raw)
        assert old.open("sub/a.txt").read() == b"second"
        with pytest.raises(ags1.FormatError, match="has version 2 by now, and version 1 was opened: open it again"):
            old.open("a.txt")


def test_a_full_disk_ends_the_run_and_loses_nothing(
    raw: Path, vault: Path, client: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(raw, {f"new/{i}": pattern(100) for i in range(100)})
    (raw / "a.txt").write_bytes(b"changed")
    write = os.write
    left = 40

    def full(descriptor: int, data: Any) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with (
        dataset.open(vault, client) as opened,
        pytest.raises(OSError, match=r"No space left on device: '.*vault") as caught,
    ):
        opened.add(raw, on_error="collect", threads=1)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    with dataset.open(vault, client) as opened:
        assert plain_of(opened) == CONTENTS
        assert opened.add(raw).resumed
        assert opened.verify().ok
    assert_clean(vault)


def test_a_read_only_dataset_is_read_and_refuses_to_be_changed(
    raw: Path, vault: Path, client: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def read_only(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and str(path).startswith(str(vault)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", read_only)
    with dataset.open(vault, client) as opened:
        assert plain_of(opened) == CONTENTS
        assert opened.verify().ok
        for change in (lambda: opened.add(raw), lambda: opened.rewrap("lake")):
            with pytest.raises(OSError, match=r"Read-only file system: .*vault"):
                change()


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("raw", "raw", "lies in the dataset"),
        ("vault/sub", "vault", "lies in the dataset"),
    ],
)
def test_a_source_in_its_target_is_refused(raw: Path, vault: Path, source: str, target: str, message: str) -> None:
    root = raw.parent
    with pytest.raises(ValueError, match=message):
        dataset.encrypt(root / source, root / target, fresh(), "lake")


def test_a_target_in_its_source_is_no_part_of_it(raw: Path, client: CountingKms) -> None:
    for _ in range(2):
        with dataset.encrypt(raw, raw / "vault", client, "lake") as vault:
            assert plain_of(vault) == CONTENTS


def test_decrypting_into_the_dataset_is_refused(vault: Path) -> None:
    with dataset.open(vault, fresh()) as opened, pytest.raises(ValueError, match="lies in the dataset"):
        opened.decrypt(vault / "plain")


def test_the_reserved_name_is_refused_and_may_be_excluded(vault: Path, tmp_path: Path, client: CountingKms) -> None:
    with pytest.raises(ValueError, match="_ags1 is reserved"):
        dataset.encrypt(vault, tmp_path / "twice", client, "lake")
    with dataset.encrypt(vault, tmp_path / "twice", client, "lake", exclude="_ags1") as twice:
        assert len(twice.files) == len(CONTENTS)


def test_wrong_arguments_and_wrong_places_are_told_apart(raw: Path, vault: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no ags1 dataset here"):
        dataset.open(tmp_path / "nowhere", fresh())
    with pytest.raises(FileNotFoundError, match="nowhere"):
        dataset.encrypt(tmp_path / "nowhere", tmp_path / "x", fresh(), "lake")
    assert not (tmp_path / "x").exists()
    with pytest.raises(ValueError, match="is under the master key 'lake', not 'new'"):
        dataset.encrypt(raw, vault, fresh(), "new")
    with pytest.raises(ValueError, match="threads must be at least 1"):
        dataset.encrypt(raw, vault, fresh(), "lake", threads=0)
    with pytest.raises(ValueError, match="on_error must be"):
        dataset.encrypt(raw, vault, fresh(), "lake", on_error="ignore")
    with pytest.raises(TypeError, match="kms must be a client"):
        dataset.open(vault, 17)
    with pytest.raises(TypeError, match="a dataset is a directory or a URL"):
        dataset.open(17, fresh())  # type: ignore[arg-type]
    with dataset.open(vault, fresh()) as opened:
        with pytest.raises(FileNotFoundError, match="the dataset has no such file"):
            opened.open("nothing")
        with pytest.raises(IsADirectoryError, match="is a directory of the dataset"):
            opened.open("sub")
        for outside in ("../raw/a.txt", "/etc/passwd", "_ags1/metadata.json", ""):
            with pytest.raises((FileNotFoundError, IsADirectoryError)):
                opened.open(outside)
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copy.copy(opened)
        assert opened.open("./sub//a.txt").read() == b"second"
    with pytest.raises(ValueError, match="closed"):
        opened.open("a.txt")
    with pytest.raises(ValueError, match="closed"):
        len(opened.files)


def test_a_dataset_is_read_by_many_threads_at_once(vault: Path) -> None:
    with dataset.open(vault, fresh()) as opened:

        def read(seed: int) -> None:
            for path in random.Random(seed).choices(sorted(CONTENTS), k=60):
                with opened.open(path) as reader:
                    assert reader.read() == CONTENTS[path]

        in_threads([lambda seed=seed: read(seed) for seed in range(6)])  # type: ignore[misc]


def test_a_dataset_elsewhere_is_read_and_not_changed(vault: Path, raw: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(vault), "/bucket/vault", recursive=True)
    try:
        with dataset.open("memory://bucket/vault", fresh()) as opened:
            assert plain_of(opened) == CONTENTS
            assert opened.verify().ok
            with pytest.raises(ValueError, match="is remote"):
                opened.add(raw)
            memory.pipe_file("/bucket/vault/a.txt", memory.cat_file("/bucket/vault/sub/a.txt"))
            memory.pipe_file("/bucket/vault/foreign", b"x")
            memory.rm_file("/bucket/vault/empty")
            assert kinds(opened.verify()) == {"a.txt": "swapped", "empty": "missing", "foreign": "foreign"}
        with pytest.raises(ValueError, match="is remote"):
            dataset.encrypt(raw, "memory://bucket/vault", fresh(), "lake")
    finally:
        memory.rm("/bucket", recursive=True)


# -- the manifest ------------------------------------------------------------------------------------------------------


def make_manifest(path: Path, names: list[str]) -> _manifest.Manifest:
    metadata = _control.Metadata("id", 1, "lake", [], "", "", 0, 0, 5, 5)
    writer = _manifest.ManifestWriter(str(path), _manifest.header_line(metadata))
    for name in sorted(names, key=os.fsencode):
        entry = _manifest.Entry(name, 1, 37, ags1.KeyMetadata(bytes(16), bytes(16), 37).encode(), 1, 2)
        writer.add(_manifest.sort_key(name), _manifest.entry_line(entry), 1)
    key = writer.close()
    reader = ags1.open(path, key_metadata=key)
    return _manifest.Manifest(reader, str(path))


@pytest.mark.parametrize("count", [0, 1, 2, 300, 301, 302, 303, 304, 305, 306, 5000])
def test_every_path_is_found_and_no_other(tmp_path: Path, count: int) -> None:
    generator = random.Random(count)
    names = {f"{generator.randrange(10**6)}/{'é' * generator.randrange(40)}{i}" for i in range(count)}
    manifest = make_manifest(tmp_path / "manifest", sorted(names))
    assert manifest.file_count == len(names)
    assert [entry.path for entry in manifest.entries()] == sorted(names, key=os.fsencode)
    for name in generator.sample(sorted(names), min(count, 400)):
        found = manifest.find(name)
        assert found is not None
        assert found.path == name
        assert manifest.find(name + "0") is None
    assert manifest.find("") is None
    assert manifest.find("\U0010ffff") is None
    manifest.close()


def test_lines_of_any_length_are_found_across_the_edges_of_blocks(tmp_path: Path) -> None:
    generator = random.Random(1)
    names = sorted(
        {"/".join(["d" * generator.randrange(1, 250)] * generator.randrange(1, 16)) + f"/{i}" for i in range(700)}
    )
    manifest = make_manifest(tmp_path / "manifest", names)
    for name in names:
        found = manifest.find(name)
        assert found is not None
        assert found.path == name
    manifest.close()


def test_a_directory_is_listed_without_reading_what_is_below_its_directories(tmp_path: Path) -> None:
    names = [f"big/{i:05}" for i in range(20_000)] + ["a", "big.txt", "c/d/e", "z"]
    manifest = make_manifest(tmp_path / "manifest", names)
    reads = []
    read = manifest._read
    manifest._read = lambda offset, size: reads.append(size) or read(offset, size)  # type: ignore[assignment, func-returns-value, method-assign]
    assert [name for name, _ in manifest.children("")] == ["a", "big.txt", "big", "c", "z"]
    assert [name for name, _ in manifest.children("c")] == ["d"]
    assert len(list(manifest.children("big"))) == 20_000
    assert manifest.has_below("c/d")
    assert not manifest.has_below("bi")
    assert [entry.path for entry in manifest.entries("c/")] == ["c/d/e"]
    manifest.close()


@pytest.mark.parametrize("path", ["", "/a", "a//b", "../a", "a/..", "./a", "a\0", "_ags1/metadata.json", "a/"])
def test_paths_that_lead_elsewhere_are_refused_though_they_are_authentic(path: str) -> None:
    line = _manifest.entry_line(_manifest.Entry(path, 1, 37, bytes(3)))
    with pytest.raises(ags1.FormatError, match="which no file of a dataset can have"):
        _manifest.parse_line(line, "manifest")


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[]", b'{"path": 1}', b"\xff", b'{"path":"a","plaintext-length":1}', b"[" * 9999]
)
def test_lines_that_are_no_entries_are_format_errors_without_contents(line: bytes) -> None:
    with pytest.raises(ags1.FormatError, match="manifest: a"):
        _manifest.parse_line(line, "manifest")


def test_control_names_are_the_documented_ones(vault: Path) -> None:
    (manifest,) = control(vault) - {"lock", "metadata.json"}
    assert _control.MANIFEST_NAME.fullmatch(manifest)
