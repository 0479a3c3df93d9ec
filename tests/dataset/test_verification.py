"""Verifying: each thing that can be wrong with a dataset has its name, and what is right has none."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ags1 import dataset, kms
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import DatasetView
from ags1.dataset.names import new_object_name, new_run
from ags1.dataset.pins import Access
from ags1.dataset.runs import Done
from ags1.dataset.transaction import Transaction
from ags1.dataset.verification import verify
from ags1.dataset.versions import read_latest
from ags1.errors import FormatError
from ags1.storage import Location
from ags1.support.reports import VerifyReport
from tests.checks import MIB, every, pattern
from tests.dataset.works import Work
from tests.servers.s3 import S3Server

KEY_ID = "lake"
CONTENTS = {
    "empty": b"",
    "large": pattern(3 * MIB + 5),
    "same": pattern(5000, 1),
    "small": pattern(5000),
    "sub/other": pattern(70_000),
    "tenant/secret": pattern(100),
}


def client(*names: str) -> kms.MemoryKms:
    masters = {"lake": bytes(32), "tenant": bytes(range(32))}
    return kms.MemoryKms({name: masters[name] for name in names or masters})


def write(root: Path, contents: dict[str, bytes]) -> Path:
    for name, data in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    write(tmp_path / "raw", CONTENTS)
    dataset.encrypt(tmp_path / "raw", tmp_path / "vault", client(), KEY_ID, durable=False).close()
    return tmp_path / "vault"


def found(vault: Path | str, *names: str, threads: int | None = None) -> VerifyReport:
    with dataset.open(vault, client(*names)) as opened:
        return opened.verify(threads=threads)


def kinds(report: VerifyReport) -> dict[str, str]:
    return {each.subject: each.code for each in report.findings}


def entries(vault: Path) -> dict[str, DatasetEntry]:
    with dataset.open(vault, client()) as opened:
        return {entry.path: entry for entry in opened.files}


def place(vault: Path, path: str, part: int = 0) -> Path:
    return vault / entries(vault)[path].parts[part].name


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


def test_a_whole_dataset_has_no_problem(vault: Path) -> None:
    for threads in (1, 2, None):
        report = found(vault, threads=threads)
        assert report.ok
        assert report.checked == {"files": len(CONTENTS), "bytes": sum(map(len, CONTENTS.values()))}
        assert report.facts == {"version": 1, "files": len(CONTENTS), "plaintext_bytes": report.checked["bytes"]}


DAMAGES: tuple[tuple[str, Callable[[Path], object], str], ...] = (
    ("small", Path.unlink, "missing"),
    ("large", Path.unlink, "missing"),
    ("large", lambda path: os.truncate(path, 2 * MIB), "truncated"),
    ("small", lambda path: os.truncate(path, 1000), "truncated"),
    ("small", lambda path: os.truncate(path, 0), "truncated"),
    ("large", lambda path: path.write_bytes(path.read_bytes() + b"more"), "extended"),
    ("small", lambda path: path.write_bytes(path.read_bytes() + b"more"), "extended"),
    ("empty", lambda path: path.write_bytes(path.read_bytes() + b"more"), "extended"),
    ("large", lambda path: flip(path, 2 * MIB), "damaged"),
    ("large", lambda path: flip(path, -1), "damaged"),
    ("small", lambda path: flip(path, 30), "damaged"),
    ("large", lambda path: flip(path, 0), "damaged"),
    ("empty", lambda path: flip(path, 20), "damaged"),
    ("small", lambda path: path.write_bytes(b"x" * 9000), "extended"),
    ("small", lambda path: path.write_bytes(secrets.token_bytes(path.stat().st_size)), "damaged"),
    ("small", replaced_by(os.mkfifo), "replaced"),
    ("large", replaced_by(os.mkfifo), "replaced"),
    ("small", replaced_by(os.mkdir), "replaced"),
)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_each_damage_has_its_name(vault: Path, number: int) -> None:
    path, damage, kind = DAMAGES[number]
    damage(place(vault, path))
    for threads in (1, 2):
        report = found(vault, threads=threads)
        assert kinds(report) == {path: kind}
        failed = len(CONTENTS[path])
        assert not report.ok
        assert report.checked == {"files": len(CONTENTS) - 1, "bytes": sum(map(len, CONTENTS.values())) - failed}
        assert entries(vault)[path].parts[0].name in report.findings[0].message


def test_a_damaged_block_is_numbered(vault: Path) -> None:
    flip(place(vault, "large"), 2 * MIB + 100)
    (problem,) = found(vault).findings
    assert problem.message.endswith(
        "1 of 4 blocks failed authentication (damaged, swapped, repeated or missing data): block 2"
    )


def test_objects_that_were_swapped_are_named(vault: Path) -> None:
    small, same = place(vault, "small"), place(vault, "same")
    small.rename(vault / "aside")
    same.rename(small)
    (vault / "aside").rename(same)
    report = found(vault)
    assert kinds(report) == {"small": "damaged", "same": "damaged"}
    assert "another file or version in its place" in {each.subject: each for each in report.findings}["small"].message


def test_what_was_put_there_is_foreign(vault: Path) -> None:
    write(vault, {"note": b"x", "sub/deep/note": b"y", "_ags1/note": b"z", "sub/.x.00.ags1-tmp": b""})
    os.mkfifo(vault / "sub" / "pipe")
    (vault / "link").symlink_to("/")
    shutil.copy(place(vault, "small"), vault / "copy")
    shutil.copy(place(vault, "small"), vault / f"small.{new_run()}-01234567.ags1")
    report = found(vault)
    stray = next(path for path in kinds(report) if path.endswith("-01234567.ags1"))
    strangers = ("note", "sub/deep/note", "_ags1/note", "sub/pipe", "link", "copy")
    wanted = {**dict.fromkeys(strangers, "foreign"), "sub/.x.00.ags1-tmp": "leftover", stray: "unreferenced"}
    assert kinds(report) == wanted


def test_what_an_interrupted_run_left_is_unreferenced_and_its_record_no_problem(vault: Path) -> None:
    with Transaction.begin(Access.of(Location(vault), client()), "test", durable=False) as transaction:
        name = new_object_name("late", transaction.run.id)
        transaction.run.begin()
        transaction.run.record([Done("late", ((name, 1),))])
        manifest = transaction.manifests.write(0, list(entries(vault).values()), transaction.run.id)
    (vault / name).write_bytes(b"half")
    assert kinds(found(vault)) == {name: "unreferenced", manifest.name: "unreferenced"}


def test_what_other_versions_name_is_no_stranger(vault: Path, tmp_path: Path) -> None:
    with dataset.open(vault, client()) as first:
        write(tmp_path / "more", {"small": b"new", "added": b"x"})
        with dataset.open(vault, client()) as opened:
            opened.add(tmp_path / "more", durable=False)
            opened.rm("large")
            assert opened.verify().ok
        # Of a later version, seen from an older one.
        assert first.version == 1
        assert first.verify().ok
    os.unlink(next(vault.glob("_ags1/v-2.json")))
    report = found(vault)
    # What only the version that went away named: its root. Its files are those of the next one. And its loss.
    assert set(kinds(report).values()) == {"missing", "unreferenced"}


def test_objects_that_may_be_of_a_damaged_version_are_not_called_unreferenced(vault: Path) -> None:
    with dataset.open(vault, client()) as opened:
        opened.rm("large")
    os.truncate(vault / "_ags1/v-1.json", 5)
    problems = found(vault).findings
    assert ("version 1", "damaged") in [(each.subject, each.code) for each in problems]
    assert "unreferenced" not in {each.code for each in problems}
    (objects,) = [each for each in problems if each.code == "unknown"]
    assert "is of version 1 is not known" in objects.message


def test_progress_ends_at_the_whole(vault: Path) -> None:
    told: list[tuple[int, int | None]] = []
    with dataset.open(vault, client()) as opened:
        opened.verify(threads=1, progress=lambda done, total: told.append((done, total)))
    total = sum(map(len, CONTENTS.values()))
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


# -- files of several objects --------------------------------------------------------------------------------------


def in_parts(root: Path, target: Location) -> tuple[Work, VerifyReport]:
    """A dataset whose big file has four objects, put there by hand."""
    work = Work(Location(write(root / "raw", {"large": CONTENTS["large"], "small": b"x"})), target)
    with Transaction.begin(Access.of(target, client()), "test", key_id="lake", durable=False) as transaction:
        work.run = transaction.run
        work.run.begin()
        work.keys = transaction.keys
        done: dict[str, list[tuple[str, int]]] = {}
        for outcome in work.outcomes(work.units(MIB)):
            assert outcome.error is None
            done.setdefault(outcome.unit.path, []).extend(outcome.result or ())
        for path, parts in done.items():
            transaction.put(transaction.entry(Done(path, tuple(parts))))
        transaction.commit()
    return work, verify_all(target)


def verify_all(target: Location) -> VerifyReport:
    version = read_latest(target)
    assert version is not None
    return verify(DatasetView.of(target, version, DatasetKeys(version.key, client(), target.text)))


def test_a_file_of_several_objects_is_verified_in_all_of_them(tmp_path: Path) -> None:
    target = Location(tmp_path / "vault")
    _, report = in_parts(tmp_path, target)
    assert report.ok
    assert len(entries(tmp_path / "vault")["large"].parts) == 4
    for part, kind in ((0, "missing"), (2, "truncated"), (3, "damaged")):
        path = place(tmp_path / "vault", "large", part)
        kept = path.read_bytes()
        path.unlink() if kind == "missing" else os.truncate(path, 50) if kind == "truncated" else flip(path, 30)
        report = verify_all(target)
        assert kinds(report) == {"large": kind}
        assert f"-p{part:05d}.ags1" in report.findings[0].message
        path.write_bytes(kept)
    first, second = (place(tmp_path / "vault", "large", part) for part in (0, 1))
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    assert kinds(verify_all(target)) == {"large": "damaged"}


def test_what_stands_where_a_new_dataset_is_to_be_is_said_before_it_is_found_to_be_foreign(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", {"a": b"1"})
    target = write(tmp_path / "vault", {"_SUCCESS": b"", "a": b"plaintext", "sub/b.csv": b"1"})
    (target / "link").symlink_to("a")
    (target / ".a.00.ags1-tmp").write_bytes(b"")
    for dry_run in (True, False):
        act = dataset.preview if dry_run else dataset.encrypt
        made = act(raw, target, client(), "lake")
        report = made if isinstance(made, dataset.RunReport) else made.report
        assert report is not None
        ((path, note),) = report.notes
        assert (path, note[:41]) == (str(target), "4 files stood here before the dataset, su")
    foreign = [name for name, kind in kinds(found(target)).items() if kind == "foreign"]
    assert sorted(foreign) == ["_SUCCESS", "a", "link", "sub/b.csv"]
    # Once: the dataset that is there is verified, not listed by each run.
    for place in (target, tmp_path / "new"):
        again = dataset.encrypt(raw, place, client(), "lake")
        assert again.report is not None
        assert again.report.notes == []


@every("missing", ["_ags1/v-*.json", "_ags1/**/*"])
def test_a_dataset_that_lost_its_versions_is_not_begun_anew(tmp_path: Path, missing: str) -> None:
    raw, target = write(tmp_path / "raw", {"a": b"1", "sub/b": b"2"}), tmp_path / "vault"
    for content in (b"1", b"2"):
        (raw / "a").write_bytes(content)
        with dataset.encrypt(raw, target, client(), "lake") as vault:
            version = vault.version
    backup = {each: each.read_bytes() for each in target.glob(missing) if each.is_file()}
    for each in backup:
        each.unlink()
    before = sorted(target.rglob("*"))
    for act in (dataset.preview, dataset.encrypt):
        with pytest.raises(
            FileExistsError, match=r"objects of an earlier dataset stand.*versions are missing: restore"
        ):
            act(raw, target, client(), "lake")
    assert sorted(target.rglob("*")) == before
    for each, content in backup.items():
        each.write_bytes(content)
    with dataset.encrypt(raw, target, client(), "lake") as vault:
        assert vault.version == version


@every("kind", ["missing", "truncated", "damaged", "unreferenced", "foreign"])
def test_an_object_store_is_verified_as_a_directory_is(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, kind: str
) -> None:
    options = s3_server.storage_options()
    url = f"s3://{s3_bucket}/vault-{kind}"
    source = write(tmp_path / f"raw-{kind}", CONTENTS)
    with dataset.encrypt(source, url, client(), KEY_ID, storage_options=options) as vault:
        assert vault.verify().ok
        key = f"vault-{kind}/{vault.files['large'].parts[0].name}"
        store = s3_server.client()
        data = store.get_object(Bucket=s3_bucket, Key=key)["Body"].read()
        wanted = {"large": kind}
        if kind == "missing":
            store.delete_object(Bucket=s3_bucket, Key=key)
        elif kind == "truncated":
            store.put_object(Bucket=s3_bucket, Key=key, Body=data[: 2 * MIB])
        elif kind == "damaged":
            store.put_object(Bucket=s3_bucket, Key=key, Body=data[:-1] + bytes([data[-1] ^ 1]))
        else:
            name = "note" if kind == "foreign" else f"note.{new_run()}-01234567.ags1"
            store.put_object(Bucket=s3_bucket, Key=f"vault-{kind}/{name}", Body=b"x")
            wanted = {name: kind}
        assert kinds(vault.verify()) == wanted


def test_a_file_that_grew_is_refused_with_its_own_length(vault: Path, tmp_path: Path) -> None:
    path = place(vault, "small")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + bytes(300))
    with (
        dataset.open(vault, client()) as opened,
        pytest.raises(FormatError, match=f"has {size + 300:,} bytes, not {size:,}"),
    ):
        opened.decrypt(tmp_path / "back", threads=1)
