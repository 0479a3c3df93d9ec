"""Other master keys for a file that holds its key material: nothing but the footer is written anew."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ags1 import AuthenticationError, FormatError, KeyAccessError, parquet
from ags1.kms import MemoryKms
from ags1.parquet.keys.key_material import KeyMaterial, KeyMetadataRewrapper, parse_key_metadata
from ags1.parquet.rewrite.rotation import holds_key_material
from ags1.parquet.structure.footer import read_footer
from tests.checks import flip
from tests.parquet import corpus
from tests.parquet.key_tools import CountingKms

OLD = {"kf": b"0123456789012345", "kc": b"1234567890123450"}
NEW = {"kf2": b"0123456789012346", "kc2": b"1234567890123456"}
IDS = {"kf": "kf2", "kc": "kc2"}


def plain() -> bytes:
    return corpus.written(corpus.flat(), row_group_size=300, write_page_index=True)


def encrypted(path: Path, **options: Any) -> Path:
    config = parquet.EncryptionConfig.from_kms(MemoryKms(OLD), "kf", {"kc": ["name", "real"]}, **options)
    parquet.encrypt_file(plain(), path, config)
    return path


def footer_start(path: Path) -> int:
    data = path.read_bytes()
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_everything_before_the_footer_is_the_same_byte_for_byte(
    tmp_path: Path, plaintext_footer: bool, algorithm: str
) -> None:
    source = encrypted(tmp_path / "a", plaintext_footer=plaintext_footer, algorithm=algorithm)
    target = tmp_path / "b"
    counts = parquet.rotate_file(source, target, MemoryKms({**OLD, **NEW}), master_key_ids=IDS)
    assert counts == {"kf2": 1, "kc2": 2}
    start = footer_start(source)
    assert start == footer_start(target)
    assert source.read_bytes()[:start] == target.read_bytes()[:start]
    assert source.read_bytes()[start:] != target.read_bytes()[start:]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_the_new_master_keys_read_it_and_the_old_ones_no_more(tmp_path: Path, plaintext_footer: bool) -> None:
    source, target = encrypted(tmp_path / "a", plaintext_footer=plaintext_footer), tmp_path / "b"
    parquet.rotate_file(source, target, MemoryKms({**OLD, **NEW}), master_key_ids=IDS)
    back = io.BytesIO()
    parquet.decrypt_file(target, back, parquet.DecryptionConfig.from_kms(MemoryKms(NEW)))
    assert pq.read_table(back, use_threads=False).equals(pq.read_table(io.BytesIO(plain()), use_threads=False))
    with pytest.raises(KeyAccessError, match="kf2"):
        parquet.decrypt_file(target, io.BytesIO(), parquet.DecryptionConfig.from_kms(MemoryKms(OLD)))


def test_a_file_may_be_replaced_by_itself(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "a")
    before = path.read_bytes()
    assert parquet.rotate_file(path, path, MemoryKms({**OLD, **NEW}), master_key_ids={"kf": "kf2"}) == {
        "kf2": 1,
        "kc": 2,
    }
    assert path.read_bytes() != before
    assert parquet.verify_file(path, parquet.DecryptionConfig.from_kms(MemoryKms({**OLD, **NEW}))).ok


def test_without_new_ids_the_same_master_keys_wrap_anew(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "a")
    target = tmp_path / "b"
    assert parquet.rotate_file(path, target, MemoryKms(OLD)) == {"kf": 1, "kc": 2}
    assert path.read_bytes() != target.read_bytes()


@pytest.mark.parametrize("stored", [True, False])
def test_the_prefix_of_the_file_stays(tmp_path: Path, stored: bool) -> None:
    path = encrypted(tmp_path / "a", aad_prefix=b"here", store_aad_prefix=stored)
    target = tmp_path / "b"
    kms = MemoryKms(OLD)
    if not stored:
        with pytest.raises(ValueError, match=r"a: .*give `aad_prefix`"):
            parquet.rotate_file(path, target, kms)
        assert not target.exists()
    parquet.rotate_file(path, target, kms, aad_prefix=None if stored else b"here")
    decryption = parquet.DecryptionConfig.from_kms(kms, aad_prefix=b"here")
    assert parquet.verify_file(target, decryption).ok
    with pytest.raises(AuthenticationError):
        parquet.rotate_file(path, target, kms, aad_prefix=b"elsewhere")


def test_a_rewrapper_asks_the_service_once_for_many_files(tmp_path: Path) -> None:
    kms = CountingKms({**OLD, **NEW})
    config = parquet.EncryptionConfig.from_kms(kms, "kf")
    for name in "abc":
        parquet.encrypt_file(plain(), tmp_path / name, config)
    kms.wraps = kms.unwraps = 0
    rewrapper = KeyMetadataRewrapper(kms, IDS)
    for name in "abc":
        parquet.rotate_file(tmp_path / name, tmp_path / name, rewrapper)
    # One old key encryption key is unwrapped; one new one is wrapped, and unwrapped to see that it can be.
    assert (kms.wraps, kms.unwraps) == (1, 1)
    with pytest.raises(ValueError, match="already has master_key_ids"):
        parquet.rotate_file(tmp_path / "a", tmp_path / "a", rewrapper, master_key_ids=IDS)


def test_whether_a_file_holds_key_material(tmp_path: Path) -> None:
    assert holds_key_material(encrypted(tmp_path / "a"))
    assert not holds_key_material(encrypted(tmp_path / "b", internal_key_material=False))
    assert not holds_key_material(plain())
    assert not holds_key_material(b"no Parquet file at all")


def test_material_beside_the_file_is_left_to_rotate_master_keys(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "a", internal_key_material=False)
    before = path.read_bytes()
    with pytest.raises(KeyAccessError, match=r"a: .*beside the file, where rotate_master_keys"):
        parquet.rotate_file(path, path, MemoryKms(OLD))
    assert path.read_bytes() == before


def test_keys_that_no_service_wrapped_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    parquet.encrypt_file(plain(), path, parquet.EncryptionConfig(bytes(range(16)), footer_key_metadata="kf"))
    with pytest.raises(FormatError, match=r"a: the footer: key metadata of 2 bytes is not JSON"):
        parquet.rotate_file(path, path, MemoryKms(OLD))


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_a_footer_that_was_changed_is_not_written_anew(tmp_path: Path, plaintext_footer: bool) -> None:
    path = encrypted(tmp_path / "a", plaintext_footer=plaintext_footer)
    path.write_bytes(flip(path.read_bytes(), len(path.read_bytes()) - 30))
    before = path.read_bytes()
    with pytest.raises((AuthenticationError, FormatError), match="footer"):
        parquet.rotate_file(path, path, MemoryKms(OLD))
    assert path.read_bytes() == before


def test_a_service_that_lacks_the_new_key_changes_nothing(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "a")
    before = path.read_bytes()
    with pytest.raises(KeyAccessError, match="kf2"):
        parquet.rotate_file(path, path, MemoryKms(OLD), master_key_ids=IDS)
    assert path.read_bytes() == before


def test_the_form_of_the_material_stays_unless_it_is_said(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "a", double_wrapping=False)
    for wanted, found in ((None, False), (True, True), (None, True), (False, False)):
        parquet.rotate_file(path, path, MemoryKms(OLD), double_wrapping=wanted)
        metadata = _footer_material(path)
        assert metadata.double_wrapping is found


def _footer_material(path: Path) -> KeyMaterial:
    from ags1.storage import open_source

    source: Any = open_source(path.read_bytes())
    material = parse_key_metadata(read_footer(source, None).key_metadata or b"")
    assert isinstance(material, KeyMaterial)
    return material


def test_progress_reaches_the_whole_file_and_can_stop_it(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "a")
    before = path.read_bytes()
    calls: list[tuple[int, int]] = []
    parquet.rotate_file(path, tmp_path / "b", MemoryKms(OLD), progress=lambda *now: calls.append(now))
    assert calls[0] == (0, len(before))
    assert calls[-1] == (len(before), len(before))

    def stop(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parquet.rotate_file(path, path, MemoryKms(OLD), progress=stop)
    assert path.read_bytes() == before


def test_a_power_cut_leaves_a_file_that_is_replaced_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its only copy is on the disk before it takes the place of the old one; other targets have that still."""
    synced: list[int] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    source, kms = encrypted(tmp_path / "a"), MemoryKms({**OLD, **NEW})
    monkeypatch.setattr(os, "fsync", noted)
    parquet.rotate_file(source, tmp_path / "b", kms, master_key_ids=IDS)
    assert not synced
    (tmp_path / "link").symlink_to("a")
    for target in (source, tmp_path / "link"):
        synced.clear()
        parquet.rotate_file(source, target, kms, master_key_ids=IDS)
        assert source.stat().st_ino in synced
