"""Other master keys for the same data keys: nothing is lost, whatever fails in between."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ags1 import AuthenticationError, KeyAccessError
from ags1.kms import MemoryKms, ServiceRefusal
from ags1.parquet.keys.key_material import (
    KeyMaterial,
    KeyMetadataRewrapper,
    key_material_path,
    parse_key_metadata,
    parse_store,
    rewrap_key_metadata,
    rotate_master_keys,
)
from ags1.parquet.keys.material import encode_reference
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
from tests.checks import flip
from tests.parquet.key_tools import COLUMNS, MASTERS, CountingKms


def lake(folder: Path, names: tuple[str, ...] = ("a.parquet", "part=1/b.parquet"), **options: Any) -> dict[Path, Any]:
    """Key material files, and what was encrypted with the keys in them."""
    config = EncryptionConfig.from_kms(
        MemoryKms(MASTERS), "kf", {"kc1": ["ssn"]}, internal_key_material=False, **options
    )
    made = {}
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        file = made[target] = config.for_file()
        file.columns([("ssn",)])
        Path(key_material_path(target)).write_bytes(file.external_key_material() or b"")
    return made


def check(made: dict[Path, Any], kms: Any) -> None:
    """Whether all keys are found with the KMS."""
    config = DecryptionConfig.from_kms(kms)
    for target, file in made.items():
        reading = config.for_file(target)
        column = file.columns([("ssn",)])[0]
        assert reading.footer_key(file.footer_key_metadata) == file.footer_key
        assert reading.column_key(("ssn",), column.key_metadata) == column.key


@pytest.mark.parametrize("double_before", [True, False])
@pytest.mark.parametrize("double", [True, False])
def test_rotation_wraps_the_same_keys_with_other_master_keys(tmp_path: Path, double_before: bool, double: bool) -> None:
    made = lake(tmp_path, double_wrapping=double_before)
    (tmp_path / "unrelated.json").write_text("{}")
    kms = MemoryKms({**MASTERS, "kf2": MASTERS["kc2"]})
    report = rotate_master_keys(kms, tmp_path, master_key_ids={"kf": "kf2"}, double_wrapping=double)
    paths = [key_material_path(target) for target in made]
    assert report.ok
    assert report.rotated == [(path, 2) for path in paths]
    assert report.master_keys == {"kf2": 2, "kc1": 2}
    check(made, MemoryKms({"kf2": MASTERS["kc2"], "kc1": MASTERS["kc1"]}))
    for path in paths:
        store = parse_store(Path(path).read_bytes())
        assert store["footerKey"].master_key_id == "kf2"
        assert {material.double_wrapping for material in store.values()} == {double}
    assert sorted(os.listdir(tmp_path)) == ["_KEY_MATERIAL_FOR_a.parquet.json", "part=1", "unrelated.json"]


def test_rotation_uses_new_key_encryption_keys_and_few_calls(tmp_path: Path) -> None:
    made = lake(tmp_path, tuple(f"{number}.parquet" for number in range(10)))
    before = {target: parse_store(Path(key_material_path(target)).read_bytes()) for target in made}
    kms = CountingKms()
    rotate_master_keys(kms, str(tmp_path))
    # Two master keys: each old and each new key encryption key is unwrapped once.
    assert (kms.wraps, kms.unwraps) == (2, 4)
    for target, old in before.items():
        new = parse_store(Path(key_material_path(target)).read_bytes())
        assert new["footerKey"].kek_id != old["footerKey"].kek_id
        assert new["footerKey"].wrapped_kek != old["footerKey"].wrapped_kek


def test_one_file_is_rotated_by_its_own_name_or_that_of_its_material(tmp_path: Path) -> None:
    made = lake(tmp_path, ("a.parquet", "b.parquet"))
    first, second = made
    for where in (first, key_material_path(first), f"file://{first}"):
        before = Path(key_material_path(first)).read_bytes()
        assert len(rotate_master_keys(MemoryKms(MASTERS), where).rotated) == 1
        assert Path(key_material_path(first)).read_bytes() != before
    check(made, MemoryKms(MASTERS))
    with pytest.raises(FileNotFoundError, match="there is no such key material file, nor a directory"):
        rotate_master_keys(MemoryKms(MASTERS), tmp_path / "c.parquet")
    assert second.name == "b.parquet"


def test_directories_below_are_left_alone_if_that_is_wanted(tmp_path: Path) -> None:
    lake(tmp_path)
    assert len(rotate_master_keys(MemoryKms(MASTERS), tmp_path, recursive=False).rotated) == 1


def test_a_file_that_fails_keeps_its_content_and_is_named(tmp_path: Path) -> None:
    made = lake(tmp_path, ("a.parquet", "b.parquet"))
    bad = Path(key_material_path(tmp_path / "a.parquet"))
    content = json.loads(bad.read_bytes())
    content["columnKey0"] = content["columnKey0"].replace("kc1", "lost")
    bad.write_text(json.dumps(content))
    before = bad.read_bytes()
    with pytest.raises(KeyAccessError, match=r"_FOR_a\.parquet\.json keeps its old content: there is no key .*'lost'"):
        rotate_master_keys(MemoryKms(MASTERS), tmp_path)
    report = rotate_master_keys(MemoryKms(MASTERS), tmp_path, on_error="collect")
    assert not report.ok
    assert [path for path, _ in report.errors] == [str(bad)]
    assert isinstance(report.errors[0][1], KeyAccessError)
    assert [path for path, _ in report.rotated] == [key_material_path(tmp_path / "b.parquet")]
    assert bad.read_bytes() == before
    check({tmp_path / "b.parquet": made[tmp_path / "b.parquet"]}, MemoryKms(MASTERS))
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'collect'"):
        rotate_master_keys(MemoryKms(MASTERS), tmp_path, on_error="ignore")


def test_a_service_that_refuses_everything_ends_the_rotation_at_the_first_file(tmp_path: Path) -> None:
    class Refusing(MemoryKms):
        calls = 0

        def unwrap_key(self, wrapped: Any, master_key_id: Any) -> Any:
            self.calls += 1
            raise ServiceRefusal("the password is wrong")

    lake(tmp_path, ("a.parquet", "b.parquet", "c.parquet"))
    kms = Refusing(MASTERS)
    with pytest.raises(ServiceRefusal, match=r"_FOR_a\.parquet\.json keeps its old content: .*the password is wrong"):
        rotate_master_keys(kms, tmp_path, on_error="collect")
    assert kms.calls == 1


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lake(tmp_path, ("a.parquet",))
    before = Path(key_material_path(tmp_path / "a.parquet")).read_bytes()

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left on device"):
        rotate_master_keys(MemoryKms(MASTERS), tmp_path)
    assert os.listdir(tmp_path) == ["_KEY_MATERIAL_FOR_a.parquet.json"]
    assert Path(key_material_path(tmp_path / "a.parquet")).read_bytes() == before
    check(made, MemoryKms(MASTERS))


def test_keys_that_were_added_during_a_rotation_are_not_lost(tmp_path: Path) -> None:
    """They are those of a Parquet file that is being replaced."""
    lake(tmp_path, ("a.parquet",))
    place = Path(key_material_path(tmp_path / "a.parquet"))

    class Busy(MemoryKms):
        def _wrap(self, key: bytes, key_id: str) -> bytes:
            place.write_text(json.dumps({**json.loads(place.read_text()), "footerKey-2": "{}"}))
            return super()._wrap(key, key_id)

    with pytest.raises(OSError, match="was changed while its keys were wrapped again: run it again"):
        rotate_master_keys(Busy(MASTERS), tmp_path)
    assert "footerKey-2" in json.loads(place.read_text())


class Forgetful(MemoryKms):
    """Wraps with a key that it does not keep."""

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        return b"nonsense" * 10


def test_nothing_is_replaced_by_material_that_does_not_open(tmp_path: Path) -> None:
    made = lake(tmp_path)
    with pytest.raises(KeyAccessError, match="keeps its old content"):
        rotate_master_keys(Forgetful(MASTERS), tmp_path)
    check(made, MemoryKms(MASTERS))


@pytest.mark.parametrize("double", [True, False])
def test_internal_material_is_wrapped_anew(double: bool) -> None:
    file = EncryptionConfig.from_kms(MemoryKms(MASTERS), "kf", kms_instance_id="eu", double_wrapping=double).for_file()
    assert file.footer_key_metadata is not None
    old = parse_key_metadata(file.footer_key_metadata)
    assert isinstance(old, KeyMaterial)
    for master in (None, "kc2"):
        metadata = rewrap_key_metadata(file.footer_key_metadata, MemoryKms(MASTERS), master)
        new = parse_key_metadata(metadata)
        assert isinstance(new, KeyMaterial)
        assert new != old
        assert (new.master_key_id, new.kms_instance_id) == (master or "kf", "eu")
        assert (new.is_footer_key, new.double_wrapping) == (True, double)
        assert DecryptionConfig.from_kms(MemoryKms(MASTERS)).for_file().footer_key(metadata) == file.footer_key


def test_several_keys_are_wrapped_anew_with_few_calls() -> None:
    kms = CountingKms()
    file = EncryptionConfig.from_kms(kms, "kf", {"kc1": ["ssn", "salary", "a"]}).for_file()
    metadata = [column.key_metadata for column in file.columns(COLUMNS) if column]
    kms.wraps = kms.unwraps = 0
    rewrapper = KeyMetadataRewrapper(kms, {"kc1": "kc2"})
    new = [rewrapper.rewrap(each or b"") for each in metadata]
    assert (kms.wraps, kms.unwraps) == (1, 1)
    assert all(b'"masterKeyID":"kc2"' in each for each in new)


@pytest.mark.parametrize("master", [None, "kc2"])
def test_a_reference_is_not_wrapped_anew(master: str | None) -> None:
    with pytest.raises(ValueError, match="beside the file, where rotate_master_keys wraps it again"):
        rewrap_key_metadata(encode_reference("footerKey"), MemoryKms(MASTERS), master)


def test_a_damaged_key_is_not_wrapped_anew() -> None:
    file = EncryptionConfig.from_kms(MemoryKms(MASTERS), "kf").for_file()
    members = json.loads(file.footer_key_metadata or b"")
    members["wrappedDEK"] = base64.b64encode(flip(base64.b64decode(members["wrappedDEK"]), 20)).decode()
    with pytest.raises(AuthenticationError, match="wrappedDEK failed authentication"):
        rewrap_key_metadata(json.dumps(members).encode(), MemoryKms(MASTERS))
