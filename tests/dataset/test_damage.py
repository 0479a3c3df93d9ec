"""One metadata object of a dataset is damaged: every command says which one, and restore is the way out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ags1.dataset.manifests as manifests
from ags1 import dataset
from ags1.audit import audit
from ags1.dataset.pins import ExpectedVersion
from ags1.dataset.rescue import find_damage, list_versions, open_to_restore
from ags1.dataset.versions import numbers
from ags1.errors import Ags1Error, AuthenticationError, ConflictError, FormatError, KeyAccessError
from ags1.kms import MemoryKms
from ags1.storage import Location
from tests.checks import flip
from tests.dataset.commits import client
from tests.dataset.conftest import Tree, kinds, plain_of, read_tree, write_tree
from tests.dataset.test_versions import begin

FIRST = {f"{directory}/{name}": f"{directory}{name}".encode() for directory in "abcdef" for name in range(3)}
SECOND = {**FIRST, "a/0": b"changed", "new": b"new"}
STEP = 41


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "raw", FIRST)


@pytest.fixture
def vault(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two versions, whose manifests are trees that share nodes."""
    monkeypatch.setattr(manifests, "FAN_OUT", 4)
    monkeypatch.setattr(manifests, "_SMALL", 1)
    dataset.encrypt(raw, tmp_path / "vault", client(), "lake").close()
    write_tree(raw, {path: SECOND[path] for path in ("a/0", "new")})
    dataset.encrypt(raw, tmp_path / "vault", client(), "lake").close()
    return tmp_path / "vault"


def opened(vault: Path, **how: Any) -> dataset.Dataset:
    return dataset.open(vault, client(), threads=1, **how)


READING: dict[str, Callable[[Path, Path], Any]] = {
    "open": lambda vault, raw: plain_of(opened(vault)),
    "decrypt": lambda vault, raw: opened(vault).decrypt(raw.parent / "plain", dry_run=True),
}
CHANGING: dict[str, Callable[[Path, Path], Any]] = {
    "encrypt": lambda vault, raw: dataset.encrypt(raw, vault, client(), threads=1),
    "preview": lambda vault, raw: dataset.preview(raw, vault, client()),
    "repair": lambda vault, raw: opened(vault).repair(raw, threads=1),
    "expire": lambda vault, raw: opened(vault).expire(older_than=None, grace=0),
}
# These need the version, and not every manifest.
SPARING: dict[str, Callable[[Path, Path], Any]] = {
    "add": lambda vault, raw: opened(vault).add(raw / "new"),
    "rm": lambda vault, raw: opened(vault).rm("b"),
    "rewrap": lambda vault, raw: opened(vault).rewrap("new"),
    "versions": lambda vault, raw: opened(vault).versions(),
    "restore the damaged one": lambda vault, raw: opened(vault, version=1).restore(2),
    "give up": lambda vault, raw: opened(vault, version=1).expire(give_up=2, grace=0),
}


def faults(path: Path, step: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Ways to damage a file, each with its name."""
    data = path.read_bytes()
    for position in range(0, len(data), step):
        yield f"bit of byte {position}", partial(path.write_bytes, flip(data, position, position % 7))
    for size in (0, 1, len(data) // 2, len(data) - 1):
        yield f"cut to {size}", partial(path.write_bytes, data[:size])
    yield "longer", partial(path.write_bytes, data + b" ")


def refused(use: Callable[[], Any], vault: Path, name: str) -> bool:
    """Whether it raised what a damaged version is to raise: the documented type, with the file and what to do."""
    try:
        use()
    except (FormatError, AuthenticationError, OSError) as error:
        found = error
    else:
        return False
    text = str(found)
    assert not isinstance(found, (FileNotFoundError, KeyAccessError)), text
    assert name in text, text
    assert f"version 2 of the dataset {vault} cannot be read" in text, text
    assert f"ags1 dataset restore {vault} 1`" in text, text
    return True


def all_refuse(vault: Path, raw: Path, name: str, *, even_sparing: bool) -> None:
    before = read_tree(vault)
    for what, use in {**READING, **CHANGING}.items():
        assert refused(partial(use, vault, raw), vault, name), what
        assert read_tree(vault) == before, what
    for what, use in SPARING.items() if even_sparing else ():
        assert refused(partial(use, vault, raw), vault, name), what
        assert read_tree(vault) == before, what
    assert plain_of(opened(vault, version=1)) == FIRST


def comes_back(vault: Path, raw: Path, files: Tree = FIRST) -> None:
    """Restore, verify and decrypt; nothing is lost; give the damaged version up; nothing of it stays."""
    before = read_tree(vault)
    with opened(vault, version=1) as found:
        tried = found.restore(1, dry_run=True)
        assert read_tree(vault) == before
        report = found.restore(1)
        assert (report.version, report.done, tried.done) == (3, len(files), len(files))
        assert "version 2 is damaged" in report.notes[0][1]
    assert read_tree(vault).items() >= before.items()
    with opened(vault) as found:
        assert plain_of(found) == files
        assert found.decrypt(raw.parent / "back").done == len(files)
        assert read_tree(raw.parent / "back") == files
        shutil.rmtree(raw.parent / "back")
        faults = {each.code for each in found.verify().findings}
        assert faults <= {"damaged", "unknown", "unreadable"}
        assert found.restore(1).changed is False
        would = found.expire(keep=100, older_than=None, grace=0, give_up=2, dry_run=True)
        did = found.expire(keep=100, older_than=None, grace=0, give_up=2)
        assert did.versions == [1, 2]
        assert (would.version, would.kept) == (did.version, did.kept)
        assert found.verify().findings == []
        assert plain_of(found) == files
        assert len(found.versions()) == 2


@pytest.mark.parametrize("part", range(4))
def test_a_damaged_last_version_is_named_by_all_and_an_older_one_comes_back(
    vault: Path, raw: Path, tmp_path: Path, part: int
) -> None:
    name = "_ags1/v-2.json"
    sound = tmp_path / "sound"
    vault.rename(sound)
    shutil.copytree(sound, vault)
    place = vault / name

    def link() -> None:
        place.unlink()
        place.symlink_to("/dev/zero")

    ways = [*faults(place, STEP), ("a link", link)]
    for number, (what, damage) in enumerate(ways):
        if number % 4 != part:
            continue
        shutil.rmtree(vault)
        shutil.copytree(sound, vault, symlinks=True)
        damage()
        try:
            all_refuse(vault, raw, name, even_sparing=True)
            found = find_damage(vault, client(), ExpectedVersion())
            assert found is not None
            (finding,) = found.report("vault").findings
            assert name in finding.message
            assert [each.error is None for each in list_versions(vault, client(), ExpectedVersion())] == [True, False]
            told = audit(vault, kms=client())
            assert not told.ok
            assert "dataset-unreferenced" not in {each.code for each in told.findings}
            comes_back(vault, raw)
        except BaseException as error:
            raise AssertionError(what) from error


def manifests_of(vault: Path, version: int) -> set[str]:
    with opened(vault, version=version) as found:
        view = found._view()
        return {name for name in view.manifests.object_names(view.root, set()) if name.startswith("_ags1/")}


def test_a_damaged_manifest_is_named_by_all_and_an_older_version_comes_back(
    vault: Path, raw: Path, tmp_path: Path
) -> None:
    first, second = manifests_of(vault, 1), manifests_of(vault, 2)
    assert first & second
    assert len(second - first) > 1
    sound = tmp_path / "sound"
    vault.rename(sound)
    for name in sorted(second):
        shutil.copytree(sound, vault)
        for _, damage in [*[*faults(vault / name, 997)][::3], ("missing", (vault / name).unlink)]:
            shutil.rmtree(vault)
            shutil.copytree(sound, vault, symlinks=True)
            damage()
            if name in first:
                # Both versions need it.
                for use in (READING["open"], CHANGING["encrypt"], CHANGING["expire"]):
                    with pytest.raises((Ags1Error, OSError), match=name) as caught:
                        use(vault, raw)
                    assert "Put the file back from a backup" in str(caught.value)
                continue
            all_refuse(vault, raw, name, even_sparing=False)
            assert find_damage(vault, client(), ExpectedVersion()) is not None
            comes_back(vault, raw)
        shutil.rmtree(vault)


def test_verify_goes_on_with_the_files_of_other_manifests(vault: Path) -> None:
    with opened(vault) as found:
        leaves = [each._node.name for each in found.files.leaves()]
        assert len(leaves) > 1
        (vault / leaves[0]).write_bytes(flip((vault / leaves[0]).read_bytes(), 50))
        (objects,) = [each.parts for each in found.files.below("f")][-1:]
        damaged = vault / objects[0].name
        damaged.write_bytes(flip(damaged.read_bytes(), -1))
        report = opened(vault).verify()
        assert kinds(report)["version 2"] == "damaged"
        assert kinds(report)["f/2"] == "damaged"
        assert {each.code for each in report.findings} <= {"damaged", "unknown"}


def test_a_damaged_older_version_blocks_only_what_needs_it(vault: Path, raw: Path, tmp_path: Path) -> None:
    place = vault / "_ags1/v-1.json"
    data = place.read_bytes()
    for position in range(0, len(data), 5 * STEP):
        place.write_bytes(flip(data, position, 1))
        with opened(vault) as found:
            assert plain_of(found) == SECOND
            assert not found.verify().ok
            for use in (lambda: found.restore(1), found.versions, lambda: dataset.open(vault, client(), version=1)):
                with pytest.raises((Ags1Error, OSError), match=r"v-1\.json: version 1 of the dataset"):
                    use()
            with pytest.raises((Ags1Error, OSError), match=r"version 1 stays.*v-1\.json.*give_up=1"):
                found.expire(keep=10)
            assert found.repair(raw).ok
    assert [each.error is None for each in list_versions(vault, client(), ExpectedVersion())] == [False, True]


def test_only_version_that_is_damaged_is_named_with_its_remedy(raw: Path, tmp_path: Path) -> None:
    dataset.encrypt(raw, tmp_path / "one", client(), "lake").close()
    place = tmp_path / "one/_ags1/v-1.json"
    data = place.read_bytes()
    for position in range(0, len(data), STEP):
        place.write_bytes(flip(data, position, 1))
        for use in (*READING.values(), *CHANGING.values()):
            with pytest.raises(Ags1Error) as caught:
                use(tmp_path / "one", raw)
            if not isinstance(caught.value, KeyAccessError):
                assert "v-1.json: version 1 of the dataset" in str(caught.value)
                assert "from a backup" in str(caught.value)
            assert str(tmp_path / "one") in str(caught.value)


# -- nobody else decides what comes back -----------------------------------------------------------------------------


def test_pins_refuse_a_restore_over_damage_as_any_other_use(vault: Path) -> None:
    pins = opened(vault).pins
    place = vault / "_ags1/v-2.json"
    place.write_bytes(flip(place.read_bytes(), 3))
    for wrong in (
        dataset.Pins(uuid="another"), dataset.Pins(key_id="another"), dataset.Pins(version=3),
    ):  # fmt: skip
        with pytest.raises((AuthenticationError, KeyAccessError), match=r"expected|put back"):
            open_to_restore(vault, client(), 1, ExpectedVersion(), pins=wrong)
    for expected in (
        ExpectedVersion(version=1),
        ExpectedVersion(uuid="other"),
        ExpectedVersion(digest="0"),
        ExpectedVersion(key_id="a"),
    ):
        with pytest.raises((AuthenticationError, KeyAccessError), match="expected"):
            open_to_restore(vault, client(), 1, expected)
    # Nothing falls back: a pinned version that is damaged is not replaced by an older one.
    with pytest.raises(FormatError, match=r"v-2\.json: version 2"):
        opened(vault, pins=pins)
    with pytest.raises(FormatError, match=r"v-2\.json: version 2"):
        opened(vault, version=1, pins=pins)
    with open_to_restore(vault, client(), 1, ExpectedVersion(), pins=pins) as found:
        found.restore(1)
        assert (found.pins.version, found.pins.uuid) == (3, pins.uuid)
    assert opened(vault, pins=pins).version == 3


def test_a_version_that_is_not_authentic_is_not_restored(vault: Path) -> None:
    place = vault / "_ags1/v-2.json"
    place.write_bytes(b"damaged")
    first = json.loads((vault / "_ags1/v-1.json").read_text())
    for change in ({"file-count": 8}, {"uuid": "00000000-0000-0000-0000-000000000000"}):
        (vault / "_ags1/v-1.json").write_text(json.dumps({**first, **change}, indent=2) + "\n")
        with pytest.raises((FormatError, AuthenticationError), match=r"_ags1/v-\d\.json: version"):
            opened(vault, version=1).restore(1)
        with pytest.raises((FormatError, AuthenticationError), match=r"_ags1/v-\d\.json: version"):
            open_to_restore(vault, client(), 1, ExpectedVersion())
        assert numbers(Location(vault)) == [1, 2]


def test_a_service_that_refuses_is_no_damage(vault: Path) -> None:
    """The last version is under a master key that this caller cannot use, and is whole."""
    opened(vault).rewrap("new")
    only_old = MemoryKms({"lake": bytes(32)})
    with pytest.raises(KeyAccessError):
        dataset.open(vault, only_old)
    with pytest.raises(KeyAccessError):
        dataset.open(vault, only_old, version=1).restore(1)
    assert numbers(Location(vault)) == [1, 2, 3]


def test_a_restore_over_damage_needs_no_former_master_key(vault: Path) -> None:
    opened(vault).rewrap("new")
    (vault / "_ags1/v-4.json").write_bytes(b"of nobody")
    only_new = MemoryKms({"new": bytes(range(1, 33))})
    with open_to_restore(vault, only_new, 1, ExpectedVersion()) as found:
        assert found.restore(1).version == 5
        assert found.key_id == "new"
        assert plain_of(found) == FIRST


def test_a_version_before_a_damaged_one_in_between_is_restored(vault: Path) -> None:
    (vault / "_ags1/v-2.json").write_bytes(b"damaged")
    with opened(vault, version=1) as found:
        found.restore(1)
        found.rm("b")
        report = found.restore(1)
        assert (report.version, report.done) == (5, 3)
        assert plain_of(found) == FIRST


def test_a_run_that_began_before_a_damaged_version_commits_nothing(vault: Path) -> None:
    slow = begin(vault)
    slow.remove("new")
    with opened(vault) as found:
        found.rm("b")
        (vault / "_ags1/v-3.json").write_bytes(b"damaged")
        with opened(vault, version=1) as older:
            older.restore(2)
    with pytest.raises(ConflictError, match="damaged, so whether expire has given up this run is unknown"):
        slow.commit()
    assert plain_of(opened(vault)) == SECOND


def test_with_two_damaged_versions_the_advice_does_not_go_in_a_circle(vault: Path, raw: Path) -> None:
    write_tree(raw, {"newer": b"newer"})
    dataset.encrypt(raw, vault, client(), "lake").close()
    for number in (2, 3):
        place = vault / f"_ags1/v-{number}.json"
        fields = json.loads(place.read_text())
        place.write_text(json.dumps({**fields, "file-count": 8}, indent=2) + "\n")
    with pytest.raises((FormatError, AuthenticationError), match=r"go back to version 2.* restore .* 2`"):
        opened(vault)
    with pytest.raises((FormatError, AuthenticationError), match=r"restore a version that `ags1 dataset versions"):
        open_to_restore(vault, client(), 2, ExpectedVersion()).restore(2)
    with open_to_restore(vault, client(), 1, ExpectedVersion()) as found:
        found.restore(1)
    assert plain_of(opened(vault)) == FIRST
