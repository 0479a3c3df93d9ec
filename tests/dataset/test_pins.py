"""Pins: what a caller knows of a dataset holds for as long as the object lives, whoever writes in the directory."""

from __future__ import annotations

import os
import random
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ags1.dataset.transaction as module
import ags1.dataset.versions as versions
from ags1 import dataset
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.pins import ExpectedVersion
from ags1.dataset.rescue import open_to_restore
from ags1.dataset.versions import numbers, read_latest
from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.storage import Location
from tests.dataset.conftest import OTHER, CountingKms, plain_of, write_tree

Use = Callable[[dataset.Dataset, Path], Any]

USES: dict[str, Use] = {
    "add": lambda found, raw: found.add(raw),
    "repair": lambda found, raw: ((Path(found.path) / found.files["a"].parts[0].name).unlink(), found.repair(raw)),
    "rm": lambda found, raw: found.rm("a"),
    "restore": lambda found, raw: found.restore(1),
    "rewrap": lambda found, raw: found.rewrap("new"),
    "expire": lambda found, raw: found.expire(older_than=None, grace=0),
    "refresh": lambda found, raw: found.refresh(),
    "versions": lambda found, raw: found.versions(),
}


def kms() -> CountingKms:
    """A service that lets this caller use the attacker's key, too."""
    return CountingKms("lake", evil=OTHER, new=bytes(range(1, 33)))


def attacked(vault: Path, key_id: str, number: int, same: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a version of another dataset behind the last one, under a key that the attacker has."""
    raw = write_tree(vault.parent / "theirs", {"a": b"of the attacker"})
    made = vault.parent / "made"
    with monkeypatch.context() as patch:
        if same is not None:
            patch.setattr(module.uuid, "uuid4", lambda: uuid.UUID(same))
        with dataset.encrypt(raw, made, kms(), key_id):
            pass
    theirs, last = read_latest(Location(made)), read_latest(Location(vault))
    assert theirs is not None
    assert last is not None
    shutil.copytree(made, vault, dirs_exist_ok=True, ignore=shutil.ignore_patterns("v-*.json", "runs"))
    keys = DatasetKeys(theirs.key, kms(), "")
    _, data = replace(theirs, version=number, parent=last.digest).authenticated(keys)
    (vault / f"_ags1/v-{number}.json").write_bytes(data)
    shutil.rmtree(made)


def made(tmp_path: Path) -> tuple[Path, Path]:
    raw, vault = write_tree(tmp_path / "raw", {"a": b"1", "b c": b"2"}), tmp_path / "vault"
    with dataset.encrypt(raw, vault, kms(), "lake") as found:
        found.rm("b c")
    (raw / "new").write_bytes(b"secret of the victim")
    return raw, vault


@pytest.mark.parametrize("pinned", [True, False])
def test_a_version_under_another_master_key_is_not_built_on(
    tmp_path: Path, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, use in USES.items():
        place = tmp_path / f"{name} {pinned}"
        raw, vault = made(place)
        with dataset.open(vault, kms()) as found:
            known = found.uuid
        with dataset.open(vault, kms(), **({"key_id": "lake", "expected_uuid": known} if pinned else {})) as found:
            attacked(vault, "evil", 3, known, monkeypatch)
            with pytest.raises(KeyAccessError, match="under the master key 'evil', but 'lake' is expected"):
                use(found, raw)
            assert found.version == 2
        assert numbers(Location(vault)) == [1, 2, 3], name


def test_a_version_that_comes_while_a_change_is_made_is_not_built_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the last version, and the commit."""
    committed = module.Transaction.commit
    for name in ("add", "rm", "expire", "encrypt"):
        raw, vault = made(tmp_path / name)
        with dataset.open(vault, kms()) as found:
            known = found.uuid

            def commit(self: Any, *, vault: Path = vault, known: str = known, **named: Any) -> Any:
                patch.undo()
                attacked(vault, "evil", 3, known, monkeypatch)
                return committed(self, **named)

            with monkeypatch.context() as patch:
                patch.setattr(module.Transaction, "commit", commit)
                use = USES.get(name, lambda found, raw: dataset.encrypt(raw, found.path, kms(), "lake"))
                with pytest.raises(KeyAccessError, match="'evil', but 'lake' is expected"):
                    use(found, raw)
        assert numbers(Location(vault)) == [1, 2, 3], name


def test_another_dataset_an_older_copy_and_another_version_of_the_same_number_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(vault: Path) -> None:
        attacked(vault, "lake", 3, None, monkeypatch)

    def older(vault: Path) -> None:
        (vault / "_ags1/v-2.json").unlink()

    def fork(vault: Path) -> None:
        (vault / "_ags1/v-2.json").unlink()
        with dataset.open(vault, kms()) as found:
            found.rm("a")

    for attack in (other, older, fork):
        for name, use in USES.items():
            if name == "diff" and attack is not other:
                # It compares versions that were read before.
                continue
            raw, vault = made(tmp_path / f"{attack.__name__} {name}")
            with dataset.open(vault, kms()) as found:
                attack(vault)
                before = numbers(Location(vault))
                with pytest.raises((AuthenticationError, FileNotFoundError)):
                    use(found, raw)
            assert numbers(Location(vault)) == before, (attack.__name__, name)


def test_own_changes_advance_the_pins_and_rewrap_says_the_new_key(tmp_path: Path) -> None:
    raw, vault = made(tmp_path)
    with dataset.open(vault, kms(), key_id="lake") as found:
        first = found.pins
        found.add(raw)
        assert (found.pins.version, found.pins.digest) == (3, found.digest)
        other = dataset.open(vault, kms(), pins=first)
        found.rewrap("new")
        found.rm("b c")
        assert found.pins == dataset.Pins(first.uuid, "new", 5, found.digest)
        assert plain_of(found) == {"a": b"1", "new": b"secret of the victim"}
        # Somebody else's object was told of no new key.
        with pytest.raises(KeyAccessError, match="say the new one"):
            other.refresh()
        with pytest.raises(KeyAccessError, match="say the new one"):
            dataset.open(vault, kms(), pins=first)
        with pytest.raises(KeyAccessError, match="but 'lake' is expected"):
            dataset.open(vault, kms(), pins=first, key_id="lake")
        with dataset.open(vault, kms(), pins=first, key_id="new") as again:
            assert again.pins == found.pins
        with dataset.open(vault, kms(), pins=found.pins) as again:
            assert again.version == 5
        # An older version is opened by its number, and the last one must be what is pinned.
        with dataset.open(vault, kms(), version=2, pins=found.pins) as again:
            assert (again.version, again.pins.version) == (2, 5)
            for number in (4, 5):
                (vault / f"_ags1/v-{number}.json").unlink()
            with pytest.raises(AuthenticationError, match="an older copy was put back"):
                dataset.open(vault, kms(), version=2, pins=again.pins)


def test_pins_are_kept_in_a_file_that_only_its_owner_can_write(tmp_path: Path) -> None:
    pins, place = dataset.Pins("u", "lake", 7, "d"), tmp_path / "pin"
    pins.save(place)
    assert place.stat().st_mode & 0o777 == 0o600
    assert dataset.Pins.load(place) == pins
    dataset.Pins().save(place)
    assert dataset.Pins.load(place) == dataset.Pins()
    place.chmod(0o660)
    with pytest.raises(FormatError, match="can be written by others"):
        dataset.Pins.load(place)
    place.chmod(0o600)
    for text in ("", "[]", "{}", '{"uuid": 1, "key-id": null, "version": 0, "digest": null}', "[" * 50_000):
        place.write_text(text)
        with pytest.raises(FormatError, match="holds no pins"):
            dataset.Pins.load(place)
    place.unlink()
    os.mkfifo(place, 0o600)
    with pytest.raises(FormatError, match="holds no pins"):
        dataset.Pins.load(place)


def test_a_pinned_dataset_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    raw, vault = made(tmp_path)
    with dataset.open(vault, kms()) as found:
        pins = found.pins
    shutil.rmtree(vault)
    with pytest.raises(AuthenticationError, match="there is no dataset"):
        dataset.encrypt(raw, vault, kms(), "lake", pins=pins)
    assert not vault.exists()


def test_a_pin_of_another_dataset_is_not_called_an_older_copy(tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", {"a": b"a"})
    with dataset.encrypt(raw, tmp_path / "pinned", kms(), "lake") as pinned:
        pinned.add(write_tree(tmp_path / "more", {"b": b"b"}))
        pin = pinned.uuid, pinned.version
    dataset.encrypt(raw, tmp_path / "other", kms(), "lake").close()
    with pytest.raises(AuthenticationError, match=r"is the dataset .* is expected: it was replaced"):
        dataset.open(tmp_path / "other", kms(), expected_uuid=pin[0], expected_version=pin[1])


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_an_older_copy_is_refused_however_many_versions_others_have_made_from_it(
    tmp_path: Path, seed: int, expired: bool
) -> None:
    """Also if all versions but the last one were removed, as an expire does, or whoever put the copy back."""
    chooser = random.Random(seed)
    vault, raw = tmp_path / "vault", tmp_path / "raw"

    def add(count: int) -> None:
        with dataset.open(vault, kms()) as found:
            for _ in range(count):
                found.add(write_tree(raw, {chooser.choice("abcdef"): chooser.randbytes(9)}))
                if chooser.random() < 0.2:
                    found.restore(found.version)

    dataset.encrypt(write_tree(raw, {"a": b"1"}), vault, kms(), "lake").close()
    add(chooser.randrange(1, 5))
    with dataset.open(vault, kms()) as found:
        pins = found.pins
        use = dataset.open(vault, kms(), pins=pins)
    copied = shutil.copytree(vault, tmp_path / "copy")
    # What was made from the pinned version is accepted, whether or not the versions between are there.
    add(chooser.randrange(1, 5))
    dataset.open(vault, kms(), pins=pins).close()
    with dataset.open(vault, kms()) as found:
        found.expire(older_than=None, grace=0)
        found.expire(older_than=None, grace=0)
    assert pins.version + 1 not in numbers(Location(vault))
    dataset.open(vault, kms(), pins=pins).close()
    shutil.rmtree(vault)
    shutil.move(copied, vault)
    for number in range(chooser.randrange(2, pins.version + 1), pins.version + 1):
        (vault / f"_ags1/v-{number}.json").unlink()
    for _ in range(pins.version + 2):
        before = numbers(Location(vault))
        for number in before[:-1] if expired else ():
            (vault / f"_ags1/v-{number}.json").unlink()
        left = numbers(Location(vault))
        for attempt in (
            lambda: dataset.open(vault, kms(), pins=pins),
            lambda: dataset.encrypt(raw, vault, kms(), "lake", pins=pins),
            use.refresh,
            lambda: use.add(raw),
        ):
            with pytest.raises(AuthenticationError, match=r"an older copy was put back|it was replaced"):
                attempt()
        assert numbers(Location(vault)) == left
        add(1)


def test_a_pin_that_is_older_than_what_a_version_names_is_not_taken_for_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "MAX_ANCESTORS", 3)
    raw, vault = made(tmp_path)
    with dataset.open(vault, kms()) as found:
        pins = found.pins
        for number in range(5):
            assert len(found._view().version.made_from) == min(3, 1 + number)
            if number < 4:
                dataset.open(vault, kms(), pins=pins).close()
            found.add(write_tree(raw, {"new": bytes([number])}))
    with pytest.raises(AuthenticationError, match="nothing shows whether it was made from version 2"):
        dataset.open(vault, kms(), pins=pins)


def test_a_version_that_is_restored_after_damage_is_accepted_where_the_damaged_one_was_pinned(tmp_path: Path) -> None:
    raw, vault = made(tmp_path)
    with dataset.open(vault, kms()) as found:
        found.add(raw)
        pins = found.pins
    (vault / f"_ags1/v-{pins.version}.json").write_bytes(b"{}")
    with open_to_restore(vault, kms(), 2, ExpectedVersion()) as found:
        found.restore(2)
    for more in range(1, 4):
        with dataset.open(vault, kms(), pins=pins) as found:
            assert found.version == pins.version + more
            found.add(write_tree(raw, {"more": bytes([more])}))
