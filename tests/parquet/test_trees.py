"""Directories of Parquet files: the same names, each file whole or not at all, nothing copied unnoticed."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ags1 import FormatError, KeyAccessError, parquet
from ags1.kms import MemoryKms, ServiceRefusal
from tests.parquet import corpus
from tests.parquet.key_tools import CountingKms

MASTERS = {"kf": b"0123456789012345", "kc": b"1234567890123450"}
NAMES = ("b.parquet", "p=1/a.parquet", "p=2/000000_0")
KEY, OTHER = bytes(range(1, 17)), bytes(range(2, 18))


def plain(rows: int = 200) -> bytes:
    return corpus.written(corpus.flat(rows))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory of Parquet files, one of them without the suffix; all older than what the tests make."""
    root = tmp_path / "lake"
    for number, name in enumerate(NAMES):
        add(root, name, plain(100 + number))
    return root


def add(root: Path, name: str, data: bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


def below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def from_kms(**options: Any) -> parquet.EncryptionConfig:
    return parquet.EncryptionConfig.from_kms(MemoryKms(MASTERS), "kf", {"kc": ["name"]}, **options)


def reading() -> parquet.DecryptionConfig:
    return parquet.DecryptionConfig.from_kms(MemoryKms(MASTERS))


def check_same(one: Path, other: Path) -> None:
    assert below(one) == below(other)
    for name in below(one):
        tables = [pq.read_table(io.BytesIO((root / name).read_bytes()), use_threads=False) for root in (one, other)]
        assert tables[0].equals(tables[1])


def test_a_tree_goes_and_comes_back_under_the_same_names(lake: Path, tmp_path: Path) -> None:
    vault, back = tmp_path / "vault", tmp_path / "back"
    report = parquet.encrypt_tree(lake, vault, from_kms())
    assert report.ok
    assert report.done == list(NAMES)
    assert report.done_bytes == sum((lake / name).stat().st_size for name in NAMES)
    assert all((vault / name).read_bytes().startswith(b"PARE") for name in NAMES)
    verified = parquet.verify_tree(vault, reading())
    assert verified.ok
    assert list(verified.facts["results"]) == list(NAMES)
    assert (verified.outcome, verified.checked["files"]) == ("authentic", len(NAMES))
    assert parquet.decrypt_tree(str(vault), str(back), reading()).done == list(NAMES)
    check_same(lake, back)


def test_every_file_of_a_tree_has_fresh_keys(lake: Path, tmp_path: Path) -> None:
    kms = CountingKms(MASTERS)
    vault = tmp_path / "vault"
    parquet.encrypt_tree(lake, vault, parquet.EncryptionConfig.from_kms(kms, "kf"))
    keys = []
    for name in NAMES:
        file = parquet.inspect(vault / name, parquet.DecryptionConfig.from_kms(kms))
        assert file.footer_readable
        config = parquet.DecryptionConfig.from_kms(kms).for_file(vault / name)
        keys.append(config.footer_key(_key_metadata(vault / name)))
    assert len({bytes(key) for key in keys}) == len(NAMES)
    # One key encryption key serves all of them.
    assert kms.wraps == 1


def _key_metadata(path: Path) -> bytes | None:
    from ags1.parquet.structure.footer import read_footer
    from ags1.storage import open_source

    source: Any = open_source(path.read_bytes())
    return read_footer(source, None).key_metadata


def test_given_keys_for_many_files_must_be_meant(lake: Path, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    config = parquet.EncryptionConfig(KEY)
    with pytest.raises(ValueError, match=r"2\*\*32 invocations.*from_kms.*shared_keys=True"):
        parquet.encrypt_tree(lake, vault, config)
    assert not vault.exists()
    assert parquet.encrypt_tree(lake, vault, config, shared_keys=True).ok
    with pytest.raises(ValueError, match="shared_keys=True"):
        parquet.rekey_tree(vault, tmp_path / "other", parquet.DecryptionConfig(KEY), parquet.EncryptionConfig(OTHER))
    for name in NAMES[1:]:
        (lake / name).unlink()
    assert parquet.encrypt_tree(lake, tmp_path / "one", config).ok


def test_a_function_gives_each_file_its_own_identity(lake: Path, tmp_path: Path) -> None:
    vault, config = tmp_path / "vault", from_kms()
    parquet.encrypt_tree(lake, vault, lambda name: config.with_aad_prefix(f"lake/{name}".encode()))

    def expected(name: str) -> parquet.DecryptionConfig:
        return reading().with_aad_prefix(f"lake/{name}".encode())

    assert parquet.verify_tree(vault, expected).ok
    (vault / NAMES[0]).write_bytes((vault / NAMES[1]).read_bytes())
    report = parquet.verify_tree(vault, expected)
    assert [(each.subject, each.code) for each in report.findings if each.outcome] == [(NAMES[0], "damaged")]
    assert not report.ok


def test_another_identity_leaves_everything_else_as_it_is() -> None:
    config = parquet.EncryptionConfig(KEY, algorithm="AES_GCM_CTR_V1", aad_prefix=b"one", store_aad_prefix=False)
    other = config.with_aad_prefix(b"two")
    assert (config.aad_prefix, other.aad_prefix) == (b"one", b"two")
    assert (other.algorithm, other.store_aad_prefix, other.fresh_keys) == ("AES_GCM_CTR_V1", False, False)
    assert other.for_file().footer_key == config.for_file().footer_key
    assert from_kms().with_aad_prefix(b"two").fresh_keys
    with pytest.raises(ValueError, match="must not be empty"):
        config.with_aad_prefix(b"")


def test_a_tree_is_keyed_anew(lake: Path, tmp_path: Path) -> None:
    vault, other, back = tmp_path / "vault", tmp_path / "other", tmp_path / "back"
    parquet.encrypt_tree(lake, vault, parquet.EncryptionConfig(KEY), shared_keys=True)
    reading_uniform, plaintext = parquet.DecryptionConfig(KEY), ["number", "real", "flag", "blob"]
    with pytest.raises(
        parquet.PlaintextColumnsError, match="would become plaintext: number, real, flag, blob"
    ) as found:
        parquet.rekey_tree(vault, other, reading_uniform, from_kms())
    assert found.value.columns == plaintext
    report = parquet.rekey_tree(vault, other, reading_uniform, from_kms(), plaintext_columns=plaintext)
    assert report.done == list(NAMES)
    parquet.decrypt_tree(other, back, reading())
    check_same(lake, back)


# -- what else lies in a tree --------------------------------------------------------------------------------------


def test_files_that_are_no_parquet_files_stop_it_before_anything_is_written(lake: Path, tmp_path: Path) -> None:
    add(lake, "notes.txt", b"what is this?")
    with pytest.raises(FormatError, match=r"notes.txt is not a Parquet file: nothing was written; `others='copy'`"):
        parquet.encrypt_tree(lake, tmp_path / "vault", from_kms())
    assert not (tmp_path / "vault").exists()


@pytest.mark.parametrize("others", ["copy", "skip"])
def test_other_files_are_copied_or_left_out_if_that_is_said(lake: Path, tmp_path: Path, others: str) -> None:
    add(lake, "p=1/notes.txt", b"what is this?")
    vault = tmp_path / "vault"
    report = parquet.encrypt_tree(lake, vault, from_kms(), others=others)
    assert report.done == list(NAMES)
    assert report.copied == (["p=1/notes.txt"] if others == "copy" else [])
    assert report.left_out == ([] if others == "copy" else [("p=1/notes.txt", "it is not a Parquet file")])
    assert (vault / "p=1/notes.txt").exists() == (others == "copy")


def test_markers_are_copied_and_what_would_leak_or_lie_is_left_out(lake: Path, tmp_path: Path) -> None:
    add(lake, "_SUCCESS", b"")
    add(lake, ".b.parquet.crc", b"crc\0")
    add(lake, "_metadata", plain())
    add(lake, "_KEY_MATERIAL_FOR_b.parquet.json", b"{}")
    add(lake, "_common_metadata", corpus.written(corpus.flat(0)))
    vault = tmp_path / "vault"
    report = parquet.encrypt_tree(lake, vault, from_kms())
    assert report.copied == ["_SUCCESS"]
    assert [name for name, _ in report.left_out] == [".b.parquet.crc", "_KEY_MATERIAL_FOR_b.parquet.json", "_metadata"]
    assert below(vault) == sorted([*NAMES, "_SUCCESS", "_common_metadata"])
    assert (vault / "_common_metadata").read_bytes().startswith(b"PARE")


def test_a_damaged_parquet_file_is_never_taken_for_another_kind(lake: Path, tmp_path: Path) -> None:
    add(lake, "b.parquet", plain()[:-1])
    with pytest.raises(FormatError, match=r"b\.parquet"):
        parquet.encrypt_tree(lake, tmp_path / "vault", from_kms(), others="copy")


def test_a_target_inside_the_source_is_not_taken_for_a_source(lake: Path) -> None:
    for _ in range(2):
        assert parquet.encrypt_tree(lake, lake / "vault", from_kms(), overwrite=True).done == list(NAMES)


def test_source_and_target_must_not_be_the_same(lake: Path) -> None:
    for target in (lake, lake / "p=1" / ".."):
        with pytest.raises(ValueError, match="same directory"):
            parquet.encrypt_tree(lake, target, from_kms())


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        parquet.encrypt_tree(tmp_path / "nowhere", tmp_path / "vault", from_kms())


@pytest.mark.parametrize(("option", "value"), [("others", "keep"), ("on_error", "ignore")])
def test_wrong_choices_are_told(lake: Path, tmp_path: Path, option: str, value: str) -> None:
    choice: dict[str, Any] = {option: value}
    with pytest.raises(ValueError, match=f"{option} must be .* or .*, not '{value}'"):
        parquet.encrypt_tree(lake, tmp_path / "vault", from_kms(), **choice)


# -- failures, and what comes after them ---------------------------------------------------------------------------


def test_the_first_failure_stops_it_and_what_was_done_stays(lake: Path, tmp_path: Path) -> None:
    add(lake, "p=1/a.parquet", b"PAR1 damaged PAR1")
    vault = tmp_path / "vault"
    with pytest.raises(FormatError, match=r"p=1/a\.parquet"):
        parquet.encrypt_tree(lake, vault, from_kms(), threads=1)
    assert below(vault) == ["b.parquet"]


def test_nothing_appears_after_an_interrupt(lake: Path, tmp_path: Path) -> None:
    """Other files were being written when the exception came: they are given up before the call returns."""
    for index in range(40):
        shutil.copy(lake / NAMES[0], lake / f"more-{index}.parquet")
        # A target counts as finished if it is newer than its source, by clocks that are coarse.
        os.utime(lake / f"more-{index}.parquet", (1, 1))
    vault, calls = tmp_path / "vault", itertools.count()

    def interrupt(done: int, total: int | None) -> None:
        if next(calls) == 5:
            raise KeyboardInterrupt

    threads = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        parquet.encrypt_tree(lake, vault, from_kms(), threads=4, progress=interrupt)
    assert set(threading.enumerate()) <= threads
    names = below(vault)
    assert len(names) < 40
    assert all(name.endswith(".parquet") for name in names), "no unfinished file is left"
    report = parquet.encrypt_tree(lake, vault, from_kms(), threads=4, resume=True)
    assert {name for name in names if name.startswith("more-")} <= set(report.finished_before)
    assert parquet.verify_tree(vault, reading(), threads=4).ok


def test_failures_are_collected_if_that_is_said(lake: Path, tmp_path: Path) -> None:
    add(lake, "p=1/a.parquet", b"PAR1 damaged PAR1")
    report = parquet.encrypt_tree(lake, tmp_path / "vault", from_kms(), on_error="collect")
    assert not report.ok
    assert [name for name, _ in report.errors] == ["p=1/a.parquet"]
    assert report.done == [NAMES[0], NAMES[2]]
    add(tmp_path / "vault", "p=1/a.parquet", b"PAR1 damaged PAR1")
    verified = parquet.verify_tree(tmp_path / "vault", reading(), on_error="collect")
    assert [(each.subject, each.code) for each in verified.findings if each.outcome] == [("p=1/a.parquet", "truncated")]
    assert not verified.ok


def test_a_directory_without_parquet_files_does_not_pass_in_silence(tmp_path: Path) -> None:
    """The threat: everything was removed, or the directory is another one, and the report says that all is well."""
    empty = tmp_path / "empty"
    add(empty, "_SUCCESS", b"")
    for run in (
        lambda: parquet.encrypt_tree(empty, tmp_path / "vault", from_kms()),
        lambda: parquet.decrypt_tree(empty, tmp_path / "back", reading()),
        lambda: parquet.rekey_tree(empty, tmp_path / "other", reading(), from_kms()),
    ):
        with pytest.warns(UserWarning, match="there are no Parquet files in .*empty") as caught:
            assert run().ok
        assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="there are no Parquet files in .*empty") as caught:
        report = parquet.verify_tree(empty, reading())
    assert caught[0].filename == __file__
    assert not report.ok
    assert (report.outcome, report.counts) == ("not checked", {"nothing-found": 1})


class RefusingKms(MemoryKms):
    """A service that nobody may use, and that counts who tries."""

    calls = 0

    def unwrap_key(self, wrapped: Any, master_key_id: Any) -> Any:
        self.calls += 1
        raise ServiceRefusal("the password is wrong")


@pytest.mark.parametrize("way", ["decrypt", "verify"])
def test_a_service_that_refuses_everything_ends_the_run_at_the_first_file(way: str, lake: Path, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    parquet.encrypt_tree(lake, vault, from_kms())
    kms = RefusingKms(MASTERS)
    decryption = parquet.DecryptionConfig.from_kms(kms)
    work: dict[str, Callable[[], object]] = {
        "decrypt": lambda: parquet.decrypt_tree(vault, tmp_path / "back", decryption, on_error="collect", threads=1),
        "verify": lambda: parquet.verify_tree(vault, decryption, on_error="collect", threads=1),
    }
    with pytest.raises(ServiceRefusal, match="the password is wrong"):
        work[way]()
    assert kms.calls <= 2, "for the keys of one file out of three"


def changed_configuration(name: str) -> parquet.EncryptionConfig:
    options: dict[str, dict[str, Any]] = {
        "algorithm": {"algorithm": "AES_GCM_CTR_V1"},
        "footer": {"plaintext_footer": True},
        "prefix": {"aad_prefix": b"another"},
        "key": {"footer_key": OTHER},
        "columns": {"column_keys": {"name": OTHER}, "encrypt_all": True},
        "fewer columns": {"column_keys": {"name": OTHER}},
    }
    return parquet.EncryptionConfig(**{"footer_key": KEY, **options[name]})


def test_a_run_is_taken_up_where_another_one_ended(lake: Path, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    parquet.encrypt_tree(lake, vault, from_kms())
    (vault / NAMES[1]).unlink()
    (vault / NAMES[2]).write_bytes((vault / NAMES[2]).read_bytes()[:-1])
    before = (vault / NAMES[0]).read_bytes()
    report = parquet.encrypt_tree(lake, vault, from_kms(), resume=True)
    assert (report.finished_before, report.done) == ([NAMES[0]], [NAMES[1], NAMES[2]])
    assert (vault / NAMES[0]).read_bytes() == before
    assert parquet.encrypt_tree(lake, vault, from_kms(), overwrite=True).done == list(NAMES)


def test_a_source_that_changed_since_is_done_again(lake: Path, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    parquet.encrypt_tree(lake, vault, from_kms())
    later = (vault / NAMES[0]).stat().st_mtime_ns
    os.utime(lake / NAMES[0], ns=(later, later))
    report = parquet.encrypt_tree(lake, vault, from_kms(), resume=True)
    assert report.done == [NAMES[0]]


def test_a_source_that_came_since_is_done_again_whatever_its_time(lake: Path, tmp_path: Path) -> None:
    """One that was copied or moved there with its own time, by rsync for example, may be older than the target."""
    vault, corrected = tmp_path / "vault", tmp_path / "corrected"
    parquet.encrypt_tree(lake, vault, from_kms())
    source = (lake / NAMES[0]).stat()
    shutil.copy2(lake / NAMES[1], corrected)
    os.utime(corrected, ns=(source.st_mtime_ns, source.st_mtime_ns))
    corrected.replace(lake / NAMES[0])
    # Newer than the time of the source, and older than its coming.
    os.utime(vault / NAMES[0], ns=(source.st_mtime_ns + 1, source.st_mtime_ns + 1))
    assert parquet.encrypt_tree(lake, vault, from_kms(), resume=True).done == [NAMES[0]]


@pytest.mark.parametrize("what", ["algorithm", "footer", "prefix", "key", "columns", "fewer columns"])
def test_a_target_of_another_configuration_is_done_again(lake: Path, tmp_path: Path, what: str) -> None:
    vault = tmp_path / "vault"
    first = parquet.EncryptionConfig(KEY)
    parquet.encrypt_tree(lake, vault, first, shared_keys=True)
    again = parquet.encrypt_tree(lake, vault, first, shared_keys=True, resume=True)
    assert again.finished_before == list(NAMES)
    changed = changed_configuration(what)
    if weaker := {"algorithm": "pages have tags", "footer": "footer is encrypted", "fewer columns": "columns"}.get(
        what
    ):
        before = [(vault / name).read_bytes() for name in NAMES]
        with pytest.raises(FileExistsError, match=f"this run would take protection from it: .*{weaker}"):
            parquet.encrypt_tree(lake, vault, changed, shared_keys=True, resume=True)
        assert [(vault / name).read_bytes() for name in NAMES] == before
    other = parquet.encrypt_tree(lake, vault, changed, shared_keys=True, resume=True, overwrite=bool(weaker))
    assert other.done == list(NAMES)
    if what == "key":
        # Stored or not, and re-keying keeps it.
        prefixed = parquet.EncryptionConfig(KEY, aad_prefix=b"file", store_aad_prefix=False)
        kept = tmp_path / "kept"
        parquet.encrypt_tree(lake, kept, prefixed, shared_keys=True)
        with pytest.raises(FileExistsError, match="take protection from it: it has an AAD prefix"):
            parquet.encrypt_tree(lake, kept, first, shared_keys=True, resume=True)
        reading = parquet.DecryptionConfig(KEY, aad_prefix=b"file")
        for _ in range(2):
            parquet.rekey_tree(kept, tmp_path / "keyed", reading, first, shared_keys=True, resume=True)
    if what == "prefix":
        with pytest.raises(FileExistsError, match="take protection from it: it has an AAD prefix"):
            parquet.encrypt_tree(lake, vault, first, shared_keys=True, resume=True)


def test_columns_that_an_earlier_run_left_in_plaintext_are_encrypted_by_the_next(lake: Path, tmp_path: Path) -> None:
    """The threat: what the first run finished is skipped, and its columns stay readable for everyone."""
    vault = tmp_path / "vault"
    first = from_kms()
    parquet.encrypt_tree(lake, vault, first)
    assert parquet.encrypt_tree(lake, vault, first, resume=True).finished_before == list(NAMES)
    report = parquet.encrypt_tree(lake, vault, from_kms(encrypt_all=True), resume=True)
    assert report.done == list(NAMES)
    for name in NAMES:
        assert all(each.encrypted for each in parquet.inspect(vault / name, reading()).columns)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_columns_under_a_key_that_was_replaced_are_encrypted_again(
    lake: Path, tmp_path: Path, plaintext_footer: bool
) -> None:
    """The threat: the key of a column has leaked, and what an earlier run made under it counts as finished."""

    def given(key: bytes) -> parquet.EncryptionConfig:
        return parquet.EncryptionConfig(KEY, column_keys={"name": key}, plaintext_footer=plaintext_footer)

    def of_kms(key_id: str, internal: bool) -> parquet.EncryptionConfig:
        return parquet.EncryptionConfig.from_kms(
            MemoryKms({"footer": KEY, "leaked": OTHER, "next": OTHER[::-1]}), "footer", {key_id: ["name"]},
            internal_key_material=internal, plaintext_footer=plaintext_footer,
        )  # fmt: skip

    pairs = [(given(OTHER), given(OTHER[::-1])), *((of_kms("leaked", it), of_kms("next", it)) for it in (True, False))]
    for number, (leaked, new) in enumerate(pairs):
        vault = tmp_path / f"vault-{number}"
        for config, kept in ((leaked, False), (leaked, True), (new, False), (new, True)):
            report = parquet.encrypt_tree(lake, vault, config, shared_keys=True, resume=True)
            assert (report.finished_before if kept else report.done) == list(NAMES)


def test_a_target_whose_key_material_is_gone_is_done_again(lake: Path, tmp_path: Path) -> None:
    vault, config = tmp_path / "vault", from_kms(internal_key_material=False)
    parquet.encrypt_tree(lake, vault, config)
    (vault / "_KEY_MATERIAL_FOR_b.parquet.json").unlink()
    assert parquet.encrypt_tree(lake, vault, config, resume=True).done == ["b.parquet"]
    assert parquet.verify_tree(vault, reading()).ok


def test_decrypting_is_taken_up_too(lake: Path, tmp_path: Path) -> None:
    vault, back = tmp_path / "vault", tmp_path / "back"
    parquet.encrypt_tree(lake, vault, from_kms())
    for name in NAMES:
        os.utime(vault / name, (1_000_000_000, 1_000_000_000))
    parquet.decrypt_tree(vault, back, reading())
    (back / NAMES[0]).write_bytes((vault / NAMES[0]).read_bytes())
    report = parquet.decrypt_tree(vault, back, reading(), resume=True)
    assert (report.done, report.finished_before) == ([NAMES[0]], [NAMES[1], NAMES[2]])


def test_a_missing_master_key_is_told_with_the_file(lake: Path, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    parquet.encrypt_tree(lake, vault, from_kms())
    with pytest.raises(KeyAccessError, match=r"b\.parquet: .*'kc'"):
        parquet.decrypt_tree(
            vault, tmp_path / "back", parquet.DecryptionConfig.from_kms(MemoryKms({"kf": MASTERS["kf"]}))
        )
    assert below(tmp_path / "back") == []


def works(lake: Path, tmp_path: Path) -> list[Callable[..., parquet.ParquetTreeReport]]:
    vault = tmp_path / "vault"
    return [
        lambda progress: parquet.encrypt_tree(lake, vault, from_kms(), progress=progress),
        lambda progress: parquet.verify_tree(vault, reading(), progress=progress),
        lambda progress: parquet.decrypt_tree(vault, tmp_path / "back", reading(), progress=progress),
    ]


def test_progress_grows_over_all_files(lake: Path, tmp_path: Path) -> None:
    for number, work in enumerate(works(lake, tmp_path)):
        calls: list[tuple[int, int]] = []
        work(lambda done, total, calls=calls: calls.append((done, total)))
        total = sum((lake if number == 0 else tmp_path / "vault").joinpath(name).stat().st_size for name in NAMES)
        assert calls[0] == (0, total)
        assert calls[-1] == (total, total)
        assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_urls_name_directories_too(lake: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    try:
        for name in NAMES:
            memory.pipe(f"/tree/lake/{name}", (lake / name).read_bytes())
        memory.pipe("/tree/lake/_SUCCESS", b"")
        report = parquet.encrypt_tree("memory://tree/lake", "memory://tree/vault", from_kms())
        assert (report.done, report.copied) == (list(NAMES), ["_SUCCESS"])
        assert parquet.verify_tree("memory://tree/vault", reading()).ok
        with pytest.raises(ValueError, match="same directory"):
            parquet.encrypt_tree("memory://tree/lake", "memory://tree/lake/", from_kms())
        with pytest.raises(FileNotFoundError):
            parquet.encrypt_tree("memory://tree/nowhere", "memory://tree/vault", from_kms())
    finally:
        memory.store.clear()


def test_a_marker_comes_after_everything_that_it_stands_for(tmp_path: Path) -> None:
    source, target = tmp_path / "lake", tmp_path / "vault"
    source.mkdir()
    (source / "_SUCCESS").write_bytes(b"")
    (source / "bad.parquet").write_bytes(b"PAR1 this is no file of Parquet PAR1")
    report = parquet.encrypt_tree(
        source, target, parquet.EncryptionConfig(bytes(range(16))), on_error="collect", shared_keys=True
    )
    assert [name for name, _ in report.errors] == ["bad.parquet"]
    assert not (target / "_SUCCESS").exists()


# -- files that lack columns -----------------------------------------------------------------------------------


WAYS: dict[str, Callable[..., parquet.ParquetTreeReport]] = {
    "encrypt": lambda lake, target, config, **more: parquet.encrypt_tree(
        lake, target, config, shared_keys=True, **more
    ),
    "rekey": lambda lake, target, config, **more: parquet.rekey_tree(
        lake, target, parquet.DecryptionConfig(allow_plaintext=True), config, shared_keys=True, **more
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by_name", [False, True], ids=["one configuration", "one for each file"])
def test_columns_that_some_files_lack_are_decided_on_before_anything_is_written(
    way: str, by_name: bool, lake: Path, tmp_path: Path
) -> None:
    table = pq.read_table(lake / "b.parquet")
    for name in ("z.parquet", "zz.parquet"):
        add(lake, name, corpus.written(table.drop_columns(["name"])))
    run, vault = WAYS[way], tmp_path / "vault"
    single = parquet.EncryptionConfig(KEY, column_keys={"name": OTHER, "number": OTHER})
    config: Any = (lambda name: single) if by_name else single
    with pytest.raises(ValueError, match=r"^z\.parquet lacks a column: there is no column 'name'; .*; so do zz\.parq"):
        run(lake, vault, config)
    assert not vault.exists()
    report = run(lake, vault, config, on_error="collect")
    assert [name for name, _ in report.errors] == ["z.parquet", "zz.parquet"]
    shutil.rmtree(vault)
    report = run(lake, vault, config, missing_columns="skip")
    assert report.ok
    assert report.done == sorted([*NAMES, "z.parquet", "zz.parquet"])
    for name in report.done:
        found = {
            ".".join(each.path): each.protection
            for each in parquet.inspect(vault / name, parquet.DecryptionConfig(KEY)).columns
        }
        assert found["number"] == "column key"
        assert found.get("name", "column key") == "column key"
    # What an earlier run made so is finished.
    assert not run(lake, vault, config, missing_columns="skip", resume=True).done
    # A misspelt name must not leave its column in plaintext everywhere.
    wrong = parquet.EncryptionConfig(KEY, column_keys={"nmae": OTHER})
    with pytest.raises(ValueError, match=r"^no file has the column nmae: nothing was written; .*did you mean 'name'"):
        run(lake, tmp_path / "other", wrong, missing_columns="skip")
    assert not (tmp_path / "other").exists()
    # Nor one in another case, in some files: to Spark, which wrote both, it is the same column.
    add(lake, "zz.parquet", corpus.written(table.rename_columns({"name": "Name"})))
    with pytest.raises(ValueError, match=r"^zz\.parquet has a column in another case: .*did you mean 'Name'"):
        run(lake, tmp_path / "other", config, missing_columns="skip")
    assert not (tmp_path / "other").exists()
    both = parquet.EncryptionConfig(KEY, column_keys={"name": OTHER, "Name": OTHER, "number": OTHER})
    assert run(lake, tmp_path / "other", both, missing_columns="skip").ok


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(lake: Path, tmp_path: Path) -> None:
    """Not one about columns."""
    add(lake, "a.parquet", b"PAR1 damaged PAR1")
    config = parquet.EncryptionConfig(KEY, column_keys={"name": OTHER})
    for missing in ("fail", "skip"):
        with pytest.raises(FormatError, match=r"a\.parquet"):
            parquet.encrypt_tree(lake, tmp_path / "vault", config, shared_keys=True, missing_columns=missing)


def test_a_newer_file_with_other_rows_does_not_pass_for_one_that_was_finished(tmp_path: Path) -> None:
    """As one of somebody else in the target, where a run is resumed."""
    lake, vault, back = tmp_path / "lake", tmp_path / "vault", tmp_path / "back"
    table = pa.table({"a": [1, 2, 3]})
    for place in (lake, back):
        place.mkdir()
    pq.write_table(table, lake / "f.parquet")
    config = parquet.EncryptionConfig(KEY)
    parquet.encrypt_tree(lake, vault, config, shared_keys=True)
    for other in (pa.table({"other": [1, 2, 3]}), pa.table({"a": [1, 2]}), pa.table({"a": ["1", "2", "3"]})):
        pq.write_table(other, back / "f.parquet")
        parquet.decrypt_tree(vault, back, parquet.DecryptionConfig(KEY), resume=True)
        assert pq.read_table(back / "f.parquet").equals(table)
        parquet.write_table(other, vault / "f.parquet", config)
        parquet.encrypt_tree(lake, vault, config, shared_keys=True, resume=True)
        assert parquet.read_table(vault / "f.parquet", parquet.DecryptionConfig(KEY)).equals(table)


@pytest.mark.parametrize("work", ["encrypt", "decrypt", "rekey"])
def test_what_the_target_has_is_replaced_only_on_demand(tmp_path: Path, work: str) -> None:
    """The threat: a wrong target directory loses the files of another table, where the command asks first."""
    (tmp_path / "plain/deep").mkdir(parents=True)
    for name in ("a.parquet", "deep/b.parquet"):
        pq.write_table(pa.table({"n": [1]}), tmp_path / "plain" / name)
    config, keys = parquet.EncryptionConfig(b"k" * 16), parquet.DecryptionConfig(footer_key=b"k" * 16)
    parquet.encrypt_tree(tmp_path / "plain", tmp_path / "encrypted", config, shared_keys=True)

    def run(**options: Any) -> Any:
        if work == "encrypt":
            return parquet.encrypt_tree(tmp_path / "plain", tmp_path / "target", config, shared_keys=True, **options)
        if work == "decrypt":
            return parquet.decrypt_tree(tmp_path / "encrypted", tmp_path / "target", keys, **options)
        return parquet.rekey_tree(
            tmp_path / "encrypted", tmp_path / "target", keys, config, shared_keys=True, **options
        )

    (tmp_path / "target/deep").mkdir(parents=True)
    pq.write_table(pa.table({"of others": [1]}), tmp_path / "target/deep/b.parquet")
    with pytest.raises(FileExistsError, match=r"1 of 2 targets do.*overwrite=True") as caught:
        run()
    assert caught.value.filename == str(tmp_path / "target/deep/b.parquet")
    assert {each.name for each in (tmp_path / "target").rglob("*") if each.is_file()} == {"b.parquet"}
    assert len(run(overwrite=True).done) == 2
    assert len(run(resume=True).finished_before) == 2


def test_a_verification_counts_only_files_that_it_has_checked_whole(tmp_path: Path) -> None:
    """A file whose keys are missing is a finding, and no checked file."""
    (tmp_path / "plain").mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"n": [1]}), tmp_path / "plain" / f"{name}.parquet")
    configs = {
        "a.parquet": parquet.EncryptionConfig(b"k" * 16, column_keys={"n": b"c" * 16}),
        "b.parquet": parquet.EncryptionConfig(b"k" * 16),
    }
    parquet.encrypt_tree(tmp_path / "plain", tmp_path / "vault", configs.__getitem__)
    report = parquet.verify_tree(tmp_path / "vault", parquet.DecryptionConfig(footer_key=b"k" * 16), on_error="collect")
    assert not report.ok
    assert report.checked["files"] == 1
    assert [each.subject for each in report.having("key-missing")] == ["a.parquet"]
