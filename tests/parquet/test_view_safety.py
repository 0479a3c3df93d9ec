"""The plaintext view under damage, threads, forks and closes: the right bytes or an error, and nothing left open."""

from __future__ import annotations

import errno
import gc
import io
import os
import pickle
import random
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ags1 import Ags1Error, AuthenticationError, FormatError, TruncatedError
from ags1.parquet import DecryptionConfig, ParquetView
from ags1.parquet.structure import footer as footer_module
from ags1.parquet.view import regions
from tests.checks import CountingFile, flip, in_child, in_threads
from tests.parquet.view_files import (
    COLUMN_KEYS,
    FOOTER_KEY,
    NAME,
    decryption,
    encrypted,
    opened,
    plain_table,
    table_of,
    view_of,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file.parquet"
    path.write_bytes(encrypted(NAME, "uniform"))
    return path


# -- damage --------------------------------------------------------------------------------------------------


def _kinds() -> dict[str, Any]:
    """One module of each kind that is read late, of the column `name` in the second row group."""
    found: dict[str, Any] = {}
    stored = opened(NAME, "uniform")
    column = next(index for index, chunk in enumerate(stored.row_groups[1].chunks) if chunk.path == ("name",))
    for module in stored.modules:
        if (module.row_group, module.column) == (1, column) and module.page in (None, 1):
            found[module.kind] = module
    return found


@pytest.mark.parametrize("make", [bytes, CountingFile], ids=["local", "parts"])
@pytest.mark.parametrize("kind", sorted(_kinds()))
def test_damage_is_the_error_of_the_reads_that_meet_it(
    kind: str, make: Callable[[bytes], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each page is a part, for one that is damaged spoils its part.
    monkeypatch.setattr(regions, "_REMOTE_PART", 1)
    module = _kinds()[kind]
    # Not in the length word: with that, the page's end would be lost, too.
    damaged = flip(encrypted(NAME, "uniform"), module.offset + module.length - 1)
    whole = view_of().read()
    chunk = next(chunk for chunk in opened(NAME, "uniform").row_groups[1].chunks if chunk.path == ("name",))
    # A page, an index or a filter is one thing; behind a header that does not open, a chunk cannot be walked.
    begin, end = next(
        (start, stop) for start, stop, _ in opened(NAME, "uniform").regions if start <= module.offset < stop
    )
    if kind.endswith("page header"):
        end = chunk.pages[0].offset + chunk.metadata[7]
    with ParquetView(make(damaged), decryption()) as view:
        for _ in range(2):
            with pytest.raises(
                (AuthenticationError, FormatError), match=r"column 'name' in row group 1|'name'.*group 1"
            ):
                view.pread(begin, end - begin)
            with pytest.raises((AuthenticationError, FormatError)):
                view.read()
            assert view.tell() == 0
            assert view.pread(0, begin) == whole[:begin]
            assert view.pread(end, view.size) == whole[end:]
        names = plain_table(NAME).column_names
        names.remove("name")
        assert table_of(view, columns=names).equals(plain_table(NAME, columns=names))


def test_damaged_plaintext_is_never_shown() -> None:
    """What a failed read leaves in the caller's memory is nothing of the page."""
    page = opened(NAME, "uniform").row_groups[0].chunks[-1].pages[-1]
    damaged = flip(encrypted(NAME, "uniform"), page.offset + page.stored_size - 1)
    with ParquetView(damaged, decryption()) as view:
        buffer = bytearray(page.stored_size)
        view.seek(page.offset)
        with pytest.raises((AuthenticationError, FormatError)):
            view.readinto(buffer)
        assert not any(buffer)


def test_a_page_of_another_place_is_refused() -> None:
    """The threat: pages exchanged within a file."""
    chunk = next(chunk for chunk in opened("no-dictionary-v1", "uniform").chunks if chunk.path == ("number",))
    pages = chunk.data_pages
    one, other = next(
        (one, other) for one in pages for other in pages if one is not other and one.stored_size == other.stored_size
    )
    data = bytearray(encrypted("no-dictionary-v1", "uniform"))
    size = one.stored_size
    data[one.offset : one.offset + size], data[other.offset : other.offset + size] = (
        data[other.offset : other.offset + size],
        data[one.offset : one.offset + size],
    )
    with ParquetView(data, decryption()) as view:
        with pytest.raises(AuthenticationError, match=r"header of data page \d+ of column 'number'"):
            view.pread(one.offset, size)


def test_a_wrong_key_is_refused_when_the_file_is_opened() -> None:
    with pytest.raises(AuthenticationError, match="footer"):
        ParquetView(encrypted(NAME, "uniform"), DecryptionConfig(b"another key of 24 bytes."))
    keys = {**COLUMN_KEYS, "name": bytes(reversed(COLUMN_KEYS["name"]))}
    with pytest.raises(AuthenticationError, match="name"):
        ParquetView(encrypted(NAME, "java"), DecryptionConfig(FOOTER_KEY, column_keys=keys))


# -- threads, forks, ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["path", "memory", "file object"])
def test_many_threads_read_at_once(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_REMOTE_PART", 300)
    whole = view_of().read()
    data = path.read_bytes()
    source: Any = {"path": path, "memory": data, "file object": CountingFile(data)}[kind]

    def job(seed: int) -> Callable[[], None]:
        def run() -> None:
            chance = random.Random(seed)
            for _ in range(60):
                offset, size = chance.randrange(len(whole)), chance.randrange(4000)
                assert view.pread(offset, size) == whole[offset : offset + size]

        return run

    with ParquetView(source, decryption()) as view:
        in_threads([job(seed) for seed in range(8)])


def test_threads_that_share_the_position_share_the_bytes() -> None:
    whole = view_of().read()
    with view_of() as view:

        def take() -> list[bytes]:
            pieces = []
            while piece := view.read(97):
                pieces.append(piece)
            return pieces

        pieces = [piece for found in in_threads([take] * 6) for piece in found]
    assert sorted(pieces) == sorted(whole[start : start + 97] for start in range(0, len(whole), 97))


def test_a_forked_child_reads_on(path: Path) -> None:
    with ParquetView(path, decryption()) as view:
        whole = view.read()
        offset = opened(NAME, "uniform").row_groups[1].chunks[0].pages[0].offset
        assert in_child(lambda: view.pread(offset, 2000)) == whole[offset : offset + 2000]
        assert view.pread(0, 50) == whole[:50]


def test_a_closed_view_answers_nothing(path: Path) -> None:
    view = ParquetView(path, decryption())
    view.close()
    view.close()
    uses: list[Callable[[], Any]] = [
        view.read,
        lambda: view.pread(0, 1),
        lambda: view.readinto(bytearray(1)),
        lambda: view.seek(0),
        view.tell,
        view.readall,
    ]
    for use in uses:
        with pytest.raises(ValueError, match="closed file"):
            use()
    assert "closed" in repr(view)
    with ParquetView(path, decryption()) as again:
        assert again.read(4) == b"PAR1"


def test_a_borrowed_file_stays_open(path: Path) -> None:
    with path.open("rb") as file:
        ParquetView(file, decryption()).close()
        assert file.read(4) == b"PARE"
    memory = io.BytesIO(path.read_bytes())
    ParquetView(memory, decryption()).close()
    assert not memory.closed


def _descriptors() -> set[str]:
    return {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _exists(name)}


def _exists(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def test_a_forgotten_view_closes_its_file_at_once(path: Path) -> None:
    gc.disable()
    try:
        view = ParquetView(path, decryption())
        view.read()
        assert str(path) in _descriptors()
        gone = weakref.ref(view)
        del view
        assert gone() is None
        assert str(path) not in _descriptors()
    finally:
        gc.enable()


def test_a_file_that_is_refused_is_closed(path: Path) -> None:
    for decrypt in (DecryptionConfig(b"another key of 24 bytes."), DecryptionConfig(aad_prefix=b"x")):
        with pytest.raises(Ags1Error):
            ParquetView(path, decrypt)
    with pytest.raises(ValueError, match="no column"):
        ParquetView(path, decryption(), columns=["nosuch"])
    assert str(path) not in _descriptors()


def test_closing_under_a_reader_gives_all_or_an_error(path: Path) -> None:
    whole = view_of().read()
    for round_ in range(30):
        view = ParquetView(path, decryption())
        begun = threading.Event()

        def read(view: ParquetView = view, begun: threading.Event = begun) -> None:
            begun.set()
            for _ in range(3):
                try:
                    found = view.pread(0, len(whole))
                except ValueError as error:
                    assert "closed file" in str(error)  # noqa: PT017
                    return
                assert found == whole

        def close(view: ParquetView = view, begun: threading.Event = begun, round_: int = round_) -> None:
            begun.wait(600)
            for _ in range(round_ * 20):
                pass
            view.close()

        in_threads([read, read, close])


def test_a_file_that_is_replaced_is_read_as_it_was(path: Path) -> None:
    whole = view_of().read()
    with ParquetView(path, decryption()) as view:
        other = path.with_name("other")
        other.write_bytes(b"something else")
        other.replace(path)
        assert view.read() == whole


def test_a_file_that_is_overwritten_in_place_is_noticed(path: Path) -> None:
    """The threat: bytes that change under a reader."""
    with ParquetView(path, decryption()) as view:
        os.truncate(path, 1000)
        with pytest.raises((TruncatedError, OSError), match=r"file\.parquet"):
            view.read()
    path.write_bytes(encrypted(NAME, "uniform"))
    with ParquetView(path, decryption()) as view:
        with path.open("r+b") as file:
            file.seek(4)
            file.write(encrypted(NAME, "no-ordinals")[4:4000][::-1])
        with pytest.raises((AuthenticationError, FormatError, OSError), match=r"file\.parquet"):
            view.read()


def test_errors_of_the_source_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is read with the footer is not read again.
    monkeypatch.setattr(footer_module, "_TAIL", 1000)

    class Broken(CountingFile):
        broken = False

        def read(self, size: int | None = -1, /) -> bytes:
            if self.broken:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(size)

    file = Broken(encrypted(NAME, "uniform"))
    with ParquetView(file, decryption()) as view:
        whole = view_of().read()
        file.broken = True
        with pytest.raises(OSError, match="Input/output error"):
            view.read()
        file.broken = False
        assert view.read() == whole


def test_it_is_no_path_and_cannot_be_sent_away(path: Path) -> None:
    with ParquetView(path, decryption()) as view:
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(view)
        for use in (view.fileno, lambda: view.truncate(0)):
            with pytest.raises(io.UnsupportedOperation):
                use()
        assert view.readable()
        assert view.seekable()
        assert not view.writable()
        assert view.name == str(path)
        assert FOOTER_KEY.decode() not in repr(view)
        assert str(path) in repr(view)
