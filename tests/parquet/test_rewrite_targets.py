"""Where rewritten files come from and go to: the same content by every way, whole or not at all, and progress."""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pyarrow.parquet as pq
import pytest

from ags1 import AuthenticationError, FormatError, KeyAccessError
from ags1.kms import MemoryKms
from ags1.parquet import (
    DecryptionConfig,
    EncryptionConfig,
    ParquetWriter,
    decrypt_file,
    encrypt_file,
    read_table,
    rekey_file,
    rotate_file,
    write_table,
)
from ags1.parquet.keys.key_material import key_material_path
from ags1.parquet.rewrite import page_copy
from ags1.parquet.rewrite.operations import copy_file
from ags1.parquet.structure import footer as footer_module
from ags1.storage import Location, Output, make_parent
from tests.checks import flip
from tests.parquet import corpus
from tests.parquet.compare import differences
from tests.parquet.key_tools import MASTERS, CountingKms
from tests.parquet.reference import open_encrypted, open_plain

KEY = b"footer key, 16 b"
COLUMN_KEY = b"column key, 32 bytes ..........."
ENCRYPTION = EncryptionConfig(KEY, column_keys={"name": COLUMN_KEY}, encrypt_all=True)
DECRYPTION = DecryptionConfig(KEY, column_keys={"name": COLUMN_KEY})
NAME = "everything-v2"
OLD = b"what was there before"


@pytest.fixture
def memory() -> Iterator[Any]:
    """An empty in-memory file system of fsspec."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def large() -> bytes:
    """Many pages in many chunks."""
    return corpus.written(corpus.flat(60_000), row_group_size=7_000, **corpus._pages(write_page_index=True))


def check(secret: bytes, plain: bytes) -> None:
    opened = open_encrypted(secret, KEY, {"name": COLUMN_KEY})
    assert differences(open_plain(plain), opened) == []
    assert opened.gaps() == []


# -- the same by every way -----------------------------------------------------------------------------------


def sources(data: bytes, directory: Path, memory: Any) -> dict[str, Callable[[], Any]]:
    path = directory / "source.parquet"
    path.write_bytes(data)
    memory.pipe_file("/in/source.parquet", data)

    def mapped() -> mmap.mmap:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    return {
        "path": lambda: path,
        "text": lambda: str(path),
        "file URL": lambda: f"file://{path}",
        "open file": lambda: path.open("rb"),
        "unbuffered file": lambda: path.open("rb", buffering=0),
        "bytes": lambda: data,
        "bytearray": lambda: bytearray(data),
        "memoryview": lambda: memoryview(data),
        "mapped file": mapped,
        "BytesIO": lambda: io.BytesIO(data),
        "URL": lambda: "memory://in/source.parquet",
        "fsspec file": lambda: memory.open("/in/source.parquet", "rb"),
    }


def test_small_windows_make_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for tail, window in ((64, 64), (1000, 5000), (64 << 10, 100_000)):
        # What is read with the footer is not read again, and what is before that comes in windows.
        monkeypatch.setattr(footer_module, "_TAIL", tail)
        monkeypatch.setattr(page_copy, "_WINDOW", window)
        for plain in (corpus.build(NAME), large()):
            made, again = io.BytesIO(), io.BytesIO()
            encrypt_file(io.BytesIO(plain), made, ENCRYPTION)
            check(made.getvalue(), plain)
            decrypt_file(io.BytesIO(made.getvalue()), again, DECRYPTION)
            assert differences(open_plain(plain), open_plain(again.getvalue())) == []


SOURCES = [
    "path", "text", "file URL", "open file", "unbuffered file", "bytes", "bytearray", "memoryview", "mapped file",
    "BytesIO", "URL", "fsspec file",
]  # fmt: skip
TARGETS = ["path", "text", "file URL", "open file", "BytesIO", "URL", "fsspec file"]


def into(kind: str, directory: Path, memory: Any, run: Callable[[Any], None]) -> bytes:
    """Run with a target of a kind; return what is there afterwards."""
    path = directory / "target.parquet"
    if kind == "BytesIO":
        buffer = io.BytesIO()
        run(buffer)
        return buffer.getvalue()
    if kind == "open file":
        with path.open("wb") as file:
            run(file)
        return path.read_bytes()
    if kind == "fsspec file":
        with memory.open("/out/target.parquet", "wb") as file:
            run(file)
        return bytes(memory.cat_file("/out/target.parquet"))
    if kind == "URL":
        run("memory://out/target.parquet")
        return bytes(memory.cat_file("/out/target.parquet"))
    run({"path": path, "text": str(path), "file URL": f"file://{path}"}[kind])
    return path.read_bytes()


def close(source: Any) -> None:
    if hasattr(source, "close"):
        source.close()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_gives_the_same(kind: str, threads: int, tmp_path: Path, memory: Any) -> None:
    plain = corpus.build(NAME)
    source = sources(plain, tmp_path, memory)[kind]()
    buffer = io.BytesIO()
    encrypt_file(source, buffer, ENCRYPTION, threads=threads)
    close(source)
    check(buffer.getvalue(), plain)
    expected = io.BytesIO()
    decrypt_file(buffer.getvalue(), expected, DECRYPTION)
    source = sources(buffer.getvalue(), tmp_path, memory)[kind]()
    decrypted = io.BytesIO()
    decrypt_file(source, decrypted, DECRYPTION, threads=threads)
    close(source)
    assert decrypted.getvalue() == expected.getvalue()
    source = sources(buffer.getvalue(), tmp_path, memory)[kind]()
    rekeyed = io.BytesIO()
    rekey_file(source, rekeyed, DECRYPTION, EncryptionConfig(COLUMN_KEY, encrypt_all=True), threads=threads)
    close(source)
    assert differences(open_plain(plain), open_encrypted(rekeyed.getvalue(), COLUMN_KEY)) == []


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("source", ["path", "bytes", "URL"])
def test_every_kind_of_target_gets_the_same(kind: str, source: str, threads: int, tmp_path: Path, memory: Any) -> None:
    plain = corpus.build(NAME)
    given = sources(plain, tmp_path, memory)[source]()
    secret = into(kind, tmp_path, memory, lambda to: encrypt_file(given, to, ENCRYPTION, threads=threads))
    check(secret, plain)
    expected = io.BytesIO()
    decrypt_file(secret, expected, DECRYPTION)
    given = sources(secret, tmp_path, memory)[source]()
    back = into(kind, tmp_path, memory, lambda to: decrypt_file(given, to, DECRYPTION, threads=threads))
    assert back == expected.getvalue()


def test_many_threads_write_a_large_file_as_one_does(tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_bytes(plain := large())
    decrypted = []
    for threads in (1, 2, 4, None):
        secret, back = tmp_path / f"{threads}.parquet", tmp_path / f"{threads}-back.parquet"
        encrypt_file(tmp_path / "in.parquet", secret, ENCRYPTION, threads=threads)
        check(secret.read_bytes(), plain)
        decrypt_file(secret, back, DECRYPTION, threads=threads)
        decrypted.append(back.read_bytes())
    assert len(set(decrypted)) == 1


def test_a_target_file_object_is_written_from_where_it_stands() -> None:
    plain = corpus.build(NAME)
    buffer = io.BytesIO(b"before")
    buffer.seek(6)
    encrypt_file(plain, buffer, ENCRYPTION)
    assert buffer.getvalue()[:6] == b"before"
    check(buffer.getvalue()[6:], plain)


def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_bytes(b"")
    encrypt_file(corpus.build(NAME), tmp_path / "x.parquet", ENCRYPTION, durable=True)
    assert (tmp_path / "x.parquet").stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ordinary", "x.parquet"]


# -- progress ------------------------------------------------------------------------------------------------


def runs(directory: Path) -> dict[str, Callable[..., None]]:
    (directory / "in.parquet").write_bytes(large())
    encrypt_file(directory / "in.parquet", directory / "secret.parquet", ENCRYPTION)
    other = EncryptionConfig(COLUMN_KEY, column_keys={"name": COLUMN_KEY}, encrypt_all=True)
    return {
        "encrypt": lambda to, **o: encrypt_file(directory / "in.parquet", to, ENCRYPTION, **o),
        "encrypt from memory": lambda to, **o: encrypt_file(large(), to, ENCRYPTION, **o),
        "decrypt": lambda to, **o: decrypt_file(directory / "secret.parquet", to, DECRYPTION, **o),
        "rekey": lambda to, **o: rekey_file(directory / "secret.parquet", to, DECRYPTION, other, **o),
    }


RUNS = ["encrypt", "encrypt from memory", "decrypt", "rekey"]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("to_path", [True, False], ids=["path", "BytesIO"])
def test_progress_begins_at_nothing_never_goes_back_and_ends_at_the_total(
    tmp_path: Path, run: str, to_path: bool
) -> None:
    seen: list[tuple[int, int]] = []
    target: Any = tmp_path / "out.parquet" if to_path else io.BytesIO()
    runs(tmp_path)[run](target, progress=lambda done, total: seen.append((done, total)))
    done = [each for each, _ in seen]
    assert seen[0][0] == 0
    assert done == sorted(done)
    [total] = {total for _, total in seen}
    assert done[-1] == total
    # Of pages, which are most of a file.
    assert (
        0.8
        < total / (tmp_path / ("secret.parquet" if run in ("decrypt", "rekey") else "in.parquet")).stat().st_size
        <= 1
    )


@pytest.mark.parametrize("name", corpus.CORPUS)
def test_progress_ends_at_the_total_for_every_file(name: str) -> None:
    seen: list[tuple[int, int]] = []
    keys = EncryptionConfig(KEY, column_keys={})
    encrypt_file(corpus.build(name), io.BytesIO(), keys, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


# -- whole or not at all -------------------------------------------------------------------------------------


class Stop(Exception):
    """Raised in the middle."""


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("late", [False, True])
def test_an_error_from_progress_leaves_the_target_as_it_was(tmp_path: Path, run: str, late: bool) -> None:
    function = runs(tmp_path)[run]
    target = tmp_path / "out.parquet"
    target.write_bytes(OLD)
    before = sorted(each.name for each in tmp_path.iterdir())

    def stop(done: int, total: int) -> None:
        if (done == total) == late:
            raise Stop

    with pytest.raises(Stop):
        function(target, progress=stop)
    assert target.read_bytes() == OLD
    assert sorted(each.name for each in tmp_path.iterdir()) == before


def places() -> dict[str, tuple[int, str]]:
    """A byte inside the first and last of each kind of module of the encrypted file, by what messages call it."""
    secret = io.BytesIO()
    encrypt_file(corpus.build(NAME), secret, ENCRYPTION)
    opened = open_encrypted(secret.getvalue(), KEY, {"name": COLUMN_KEY})
    found: dict[str, tuple[int, str]] = {"file": (0, secret.getvalue().hex())}
    for module in opened.modules:
        if module.offset >= 0:
            for which in ("first", "last"):
                if which == "last" or f"{which} {module.kind}" not in found:
                    found[f"{which} {module.kind}"] = (module.offset + module.length - 3, module.kind)
    return found


@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize(
    "kind",
    [
        "data page", "data page header", "dictionary page", "dictionary page header", "column index", "offset index",
        "Bloom filter header", "Bloom filter bitset", "footer",
    ],
)  # fmt: skip
def test_damage_anywhere_leaves_the_target_as_it_was(tmp_path: Path, kind: str, which: str) -> None:
    all_places = places()
    secret = bytes.fromhex(all_places["file"][1])
    (tmp_path / "in.parquet").write_bytes(flip(secret, all_places[f"{which} {kind}"][0]))
    target = tmp_path / "out.parquet"
    target.write_bytes(OLD)
    for source in (tmp_path / "in.parquet", (tmp_path / "in.parquet").read_bytes()):
        # A page's CRC is that of what is stored, and is looked at first.
        with pytest.raises((AuthenticationError, FormatError), match=r"damaged data"):
            decrypt_file(source, target, DECRYPTION)
        with pytest.raises((AuthenticationError, FormatError), match=r"damaged data"):
            rekey_file(source, target, DECRYPTION, EncryptionConfig(COLUMN_KEY, encrypt_all=True))
        assert target.read_bytes() == OLD
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]


def test_wrong_configurations_leave_the_target_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    source.write_bytes(corpus.build(NAME))
    target.write_bytes(OLD)
    with pytest.raises(ValueError, match="no column 'absent'"):
        encrypt_file(source, target, EncryptionConfig(KEY, column_keys={"absent": KEY}))
    with pytest.raises(FormatError, match=r"in\.parquet.*not encrypted"):
        decrypt_file(source, target, DECRYPTION)
    encrypt_file(source, source.with_name("secret.parquet"), ENCRYPTION)
    with pytest.raises(KeyAccessError, match=r"secret\.parquet.*column name"):
        decrypt_file(source.with_name("secret.parquet"), target, DecryptionConfig(KEY))
    with pytest.raises(OSError, match="absent"):
        encrypt_file(tmp_path / "absent.parquet", target, ENCRYPTION)
    assert target.read_bytes() == OLD
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.parquet", "out.parquet", "secret.parquet"]


def test_a_failure_leaves_nothing_at_a_url(memory: Any) -> None:
    memory.pipe_file("/out/old.parquet", OLD)

    def stop(done: int, total: int) -> None:
        if done:
            raise Stop

    for name in ("old", "new"):
        with pytest.raises(Stop):
            encrypt_file(corpus.build(NAME), f"memory://out/{name}.parquet", ENCRYPTION, progress=stop)
    assert memory.cat_file("/out/old.parquet") == OLD
    assert not memory.exists("/out/new.parquet")


@pytest.mark.parametrize("way", ["same", "relative", "symbolic link", "hard link"])
def test_a_file_is_not_rewritten_onto_itself(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in.parquet"
    source.write_bytes(corpus.build(NAME))
    target: Any = source
    if way == "relative":
        monkeypatch.chdir(tmp_path)
        target = "in.parquet"
    elif way == "symbolic link":
        target = tmp_path / "link"
        target.symlink_to(source)
    elif way == "hard link":
        target = tmp_path / "link"
        os.link(source, target)
    with pytest.raises(ValueError, match="same file"):
        encrypt_file(source, target, ENCRYPTION)
    assert source.read_bytes() == corpus.build(NAME)


def test_a_source_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    source.write_bytes(large())
    target.write_bytes(OLD)

    def append(done: int, total: int) -> None:
        with source.open("ab") as file:
            file.write(b"more")

    with pytest.raises(OSError, match=r"was changed after it was opened.*in\.parquet"):
        encrypt_file(source, target, ENCRYPTION, progress=append)
    assert target.read_bytes() == OLD


# -- key material beside the target --------------------------------------------------------------------------


def external(kms: Any = None) -> EncryptionConfig:
    return EncryptionConfig.from_kms(kms or MemoryKms(MASTERS), "kf", {"kc1": ["name"]}, internal_key_material=False)


MATERIAL = "_KEY_MATERIAL_FOR_out.parquet.json"


def test_external_key_material_lies_beside_the_target(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    encrypt_file(corpus.build(NAME), target, external())
    assert sorted(each.name for each in tmp_path.iterdir()) == [MATERIAL, "out.parquet"]
    back = io.BytesIO()
    decrypt_file(target, back, DecryptionConfig.from_kms(MemoryKms(MASTERS)))
    assert differences(open_plain(corpus.build(NAME)), open_plain(back.getvalue())) == []
    (tmp_path / MATERIAL).unlink()
    with pytest.raises(KeyAccessError, match="_KEY_MATERIAL_FOR_out"):
        decrypt_file(target, io.BytesIO(), DecryptionConfig.from_kms(MemoryKms(MASTERS)))


def test_external_key_material_lies_beside_a_url(memory: Any) -> None:
    encrypt_file(corpus.build(NAME), "memory://lake/out.parquet", external())
    assert sorted(memory.ls("/lake", detail=False)) == [f"/lake/{MATERIAL}", "/lake/out.parquet"]
    back = io.BytesIO()
    decrypt_file("memory://lake/out.parquet", back, DecryptionConfig.from_kms(MemoryKms(MASTERS)))
    assert differences(open_plain(corpus.build(NAME)), open_plain(back.getvalue())) == []


def test_external_key_material_needs_a_place() -> None:
    with pytest.raises(ValueError, match="must be a path or URL; or leave `internal_key_material=False` out"):
        encrypt_file(corpus.build(NAME), io.BytesIO(), external())


def test_no_key_material_is_left_by_a_failure(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == total:
            raise Stop

    with pytest.raises(Stop):
        encrypt_file(corpus.build(NAME), tmp_path / "out.parquet", external(), progress=stop)
    # A master key that the KMS does not have.
    config = EncryptionConfig.from_kms(MemoryKms(MASTERS), "kf", {"absent": ["name"]}, internal_key_material=False)
    with pytest.raises(KeyAccessError, match="absent"):
        encrypt_file(corpus.build(NAME), tmp_path / "out.parquet", config)
    assert list(tmp_path.iterdir()) == []


class Killed(BaseException):
    """Ends the work as a signal would: nothing after it runs but what a ``finally`` does."""


@pytest.mark.parametrize("where", ["local", "memory"])
def test_the_file_that_is_there_can_be_read_after_an_end_at_any_write(
    where: str, tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key material and file are two writes, so an end between them must not take the keys of the old file."""
    root = str(tmp_path) if where == "local" else "memory://lake"
    commit, reading = Output.commit, DecryptionConfig.from_kms(MemoryKms(MASTERS))
    contents = [corpus.build("snappy-v1"), corpus.build(NAME)]

    def ending(end_at: int, after: bool, kind: type[BaseException]) -> Any:
        count = 0

        def ended(output: Output, *, durable: bool = False) -> None:
            nonlocal count
            count += 1
            if count < end_at or after:
                commit(output, durable=durable)
            if count >= end_at:
                raise kind("ended here")

        return ended

    def readable(target: str) -> int:
        back = io.BytesIO()
        decrypt_file(target, back, reading)
        alike = [not differences(open_plain(content), open_plain(back.getvalue())) for content in contents]
        return alike.index(True)

    def entries(target: str) -> dict[str, str]:
        with fsspec.open(key_material_path(target)) as file:
            found: dict[str, str] = json.load(file)
        return found

    for end_at, after, kind in product((1, 2, 3), (False, True), (Killed, OSError)):
        target = f"{root}/{end_at}{after}{kind.__name__}/out.parquet"
        make_parent(Location(target))
        encrypt_file(contents[0], target, external())
        assert sorted(entries(target)) == ["columnKey0", "footerKey"]
        with monkeypatch.context() as patch:
            patch.setattr(Output, "commit", ending(end_at, after, kind))
            with contextlib.suppress(kind):
                encrypt_file(contents[1], target, external())
        # The second write is that of the file.
        assert readable(target) == int((end_at, after) >= (2, True)), (end_at, after)
        # Whatever was left goes with the next write, and its keys are the only ones.
        encrypt_file(contents[1], target, external())
        assert readable(target) == 1
        assert len(entries(target)) == 2
        # Keys of other files are never taken for those of this one.
        assert {name.partition("-")[0] for name in entries(target)} == {"columnKey0", "footerKey"}


def test_key_material_that_cannot_be_read_stops_the_work(tmp_path: Path) -> None:
    """It may be that of the file that is there."""
    (tmp_path / MATERIAL).write_text("[]")
    for write in (
        lambda: encrypt_file(corpus.build(NAME), tmp_path / "out.parquet", external()),
        lambda: ParquetWriter(tmp_path / "out.parquet", pyarrow.schema({"name": pyarrow.string()}), external()),
    ):
        with pytest.raises(FormatError, match=f"{MATERIAL}: the key material file must be a JSON object"):
            write()
    assert [each.name for each in tmp_path.iterdir()] == [MATERIAL]


def test_two_writers_of_one_file_do_not_mix_their_keys(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    table = pyarrow.table({"name": ["a"]})
    with ParquetWriter(target, table.schema, external()) as first:
        first.write(table)
        with ParquetWriter(target, table.schema, external()) as second:
            second.write(table)
        with pytest.raises(OSError, match="has keys of another process that writes the same file now"):
            first.close()
    assert read_table(target, DecryptionConfig.from_kms(MemoryKms(MASTERS))) == table


def test_a_writer_does_not_put_its_keys_beside_the_file_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both began without a file there, so their keys have the same names."""
    table, other = pyarrow.table({"name": ["a"]}), tmp_path / "other" / "out.parquet"
    other.parent.mkdir()
    write_table(table, other, external())
    commit, target = Output.commit, tmp_path / "out.parquet"

    def beside(output: Output, *, durable: bool = False) -> None:
        commit(output, durable=durable)
        if target.exists():
            for path in other.parent.iterdir():
                shutil.copy(path, tmp_path)

    monkeypatch.setattr(Output, "commit", beside)
    with pytest.raises(FileExistsError, match="another process has written this file and its keys at the same moment"):
        write_table(pyarrow.table({"name": ["b"]}), target, external())
    assert read_table(target, DecryptionConfig.from_kms(MemoryKms(MASTERS))) == table


def test_every_file_of_a_kms_configuration_has_keys_of_its_own() -> None:
    kms = CountingKms()
    config = EncryptionConfig.from_kms(kms, "kf", {"kc1": ["name", "number"]}, plaintext_footer=True)
    first, second = io.BytesIO(), io.BytesIO()
    encrypt_file(corpus.build(NAME), first, config)
    encrypt_file(corpus.build(NAME), second, config)
    # One key encryption key for each master key wraps them all.
    assert kms.wraps == 2
    # The key of "number" in one file is not that of "name", and no key of the other file.
    wrapped = [set(re.findall(rb'"wrappedDEK":"([^"]+)"', each.getvalue())) for each in (first, second)]
    assert [len(each) for each in wrapped] == [3, 3]
    assert not wrapped[0] & wrapped[1]
    back = io.BytesIO()
    decrypt_file(second.getvalue(), back, DecryptionConfig.from_kms(kms))
    assert differences(open_plain(corpus.build(NAME)), open_plain(back.getvalue())) == []


@pytest.mark.parametrize("wrong", [None, b"key", "key"])
def test_nothing_is_written_without_a_configuration(wrong: object, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    good = DecryptionConfig(bytes(range(16)))
    for call in (
        lambda: encrypt_file(b"", target, wrong),  # type: ignore[arg-type]
        lambda: rekey_file(b"", target, good, wrong),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=r"^encryption must be an ags1\.parquet\.EncryptionConfig, not "):
            call()
    with pytest.raises(TypeError, match=r"^decryption must be an ags1\.parquet\.DecryptionConfig, not "):
        decrypt_file(b"", target, wrong)  # type: ignore[arg-type]
    assert not target.exists()


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_a_flipped_bit_in_the_first_bytes_is_found(plaintext_footer: bool, tmp_path: Path) -> None:
    key, target = bytes(range(16)), io.BytesIO()
    encrypt_file(corpus.build("snappy-v1"), target, EncryptionConfig(key, plaintext_footer=plaintext_footer))
    for position in range(4):
        damaged = flip(target.getvalue(), position)
        with pytest.raises(FormatError, match=r"begins with b'.*' and ends with b'PAR[1E]': damaged"):
            decrypt_file(damaged, tmp_path / "out.parquet", DecryptionConfig(key))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("work", ["encrypt", "decrypt", "rekey", "rotate", "copy"])
def test_what_is_made_of_a_private_file_is_private(work: str, tmp_path: Path) -> None:
    """The threat: decrypting a 0600 file shows it to everybody."""
    plain, secret, target = tmp_path / "plain.parquet", tmp_path / "secret.parquet", tmp_path / "new.parquet"
    plain.write_bytes(corpus.build(NAME))
    kms = MemoryKms({"kf": bytes(16)})
    encrypt_file(plain, secret, EncryptionConfig.from_kms(kms, "kf"))
    reading = DecryptionConfig.from_kms(kms)
    plain.chmod(0o600)
    secret.chmod(0o600)
    {
        "encrypt": lambda: encrypt_file(plain, target, EncryptionConfig(KEY)),
        "decrypt": lambda: decrypt_file(secret, target, reading),
        "rekey": lambda: rekey_file(secret, target, reading, EncryptionConfig(KEY)),
        "rotate": lambda: rotate_file(secret, target, kms),
        "copy": lambda: copy_file(str(secret), str(target)),
    }[work]()
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_pages_that_are_copied_are_opened(algorithm: str, tmp_path: Path) -> None:
    """The threat: a damaged page goes from file to file under the same key, and nobody says so."""
    config = EncryptionConfig(bytes(range(16)), algorithm=algorithm)
    reading = DecryptionConfig(bytes(range(16)))
    path, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    encrypt_file(corpus.build("snappy-v1"), path, config)
    rekey_file(path, target, reading, config)
    assert target.read_bytes()[4:1000] == path.read_bytes()[4:1000], "it was not copied"
    # In the first page header, whatever the algorithm.
    path.write_bytes(flip(path.read_bytes(), 4 + 4 + 12 + 3))
    target.unlink()
    with pytest.raises(AuthenticationError):
        rekey_file(path, target, reading, config)
    assert not target.exists()
    if algorithm == "AES_GCM_V1":
        for offset in range(100, 1000, 50):
            encrypt_file(corpus.build("snappy-v1"), path, config)
            path.write_bytes(flip(path.read_bytes(), offset))
            with pytest.raises((AuthenticationError, FormatError)):
                rekey_file(path, target, reading, config)


@pytest.mark.parametrize("verb", ["encrypt", "rekey"])
def test_a_further_column_chunk_costs_few_calls_of_python(verb: str) -> None:
    """A lake has many small files: the time of each must not go to the interpreter, chunk by chunk."""
    key, other = bytes(range(16)), bytes(range(1, 17))
    counts = []
    for groups in (1, 5):
        plain, secret = io.BytesIO(), io.BytesIO()
        columns = {f"c{number}": list(range(1000)) for number in range(8)}
        pq.write_table(pyarrow.table(columns), plain, row_group_size=1000 // groups, write_page_index=True)
        encrypt_file(plain.getvalue(), secret, EncryptionConfig(key))

        def work(plain: bytes = plain.getvalue(), secret: bytes = secret.getvalue()) -> None:
            if verb == "encrypt":
                encrypt_file(plain, io.BytesIO(), EncryptionConfig(key), threads=1)
            else:
                rekey_file(secret, io.BytesIO(), DecryptionConfig(key), EncryptionConfig(other), threads=1)

        work()
        counts.append(_calls(work))
    assert counts[1] - counts[0] < 32 * 30


def _calls(work: Callable[[], None]) -> int:
    """The Python functions that are called, without those in C."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
