"""Sources: the order of a manifest whatever the names are, what is left out is named, and a change is noticed."""

from __future__ import annotations

import errno
import os
import random
import secrets
from pathlib import Path

import pytest

import ags1.dataset.sources as sources
import ags1.storage.listing as listing
from ags1 import dataset
from ags1.dataset.entries import SourceIdentity
from ags1.dataset.names import sort_key
from ags1.dataset.selection import Filter
from ags1.dataset.sources import open_same, read_same, scan
from ags1.storage import Entry, Location
from tests.dataset.conftest import CountingKms, plain_of
from tests.dataset.works import found_in
from tests.servers.s3 import S3Server

NAMES = ("a", "b", "a.b", "a-b", "a b", "ä", "z" * 255, "a0", "%41", "A", "a\n", "année")


def make(root: Path, names: list[str]) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode()[:7])


def random_names(rng: random.Random) -> list[str]:
    """Names of files, none of which is a directory of another."""
    names = {"/".join(rng.choice(NAMES) for _ in range(rng.randint(1, 3))) for _ in range(30)}
    return [name for name in names if not any(other.startswith(f"{name}/") for other in names)]


@pytest.mark.parametrize("seed", range(5))
def test_files_come_in_the_order_of_their_paths_here_and_behind_urls(tmp_path: Path, seed: int) -> None:
    names = random_names(random.Random(seed))
    make(tmp_path / "raw", names)
    wanted = Filter(exclude=["b", "a.b/a"])
    local, _ = found_in(Location(tmp_path / "raw"), "top", wanted)
    assert [found.path for found in local] == sorted((found.path for found in local), key=sort_key)
    import fsspec

    url = f"memory://scan-{secrets.token_hex(4)}"
    for name in names:
        fsspec.filesystem("memory").pipe(f"{url}/{name}", (tmp_path / "raw" / name).read_bytes())
    remote, _ = found_in(Location(url), "top", wanted)
    assert [(found.path, found.source, found.size) for found in remote] == [
        (found.path, found.source, found.size) for found in local
    ]
    kept = {name for name in names if "b" not in name.split("/") and not f"{name}/".startswith("a.b/a/")}
    assert {found.source for found in local} == kept


def test_a_name_that_is_no_text_is_found(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff")).write_bytes(b"x")
    ((found,), _) = found_in(Location(tmp_path))
    assert os.fsencode(found.path) == b"bad\xff"
    assert read_same(found.location, found.identity) == b"x"


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    make(tmp_path, ["d/x", "file", "d/.x.0123.ags1-tmp"])
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "up").symlink_to(tmp_path / "d")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "nowhere").symlink_to("nothing")
    (tmp_path / "null").symlink_to(os.devnull)
    found, skipped = found_in(Location(tmp_path))
    assert [(each.path, each.error) for each in found] == [("d/x", None), ("file", None)]
    assert set(skipped) == {"pipe", "up", "null", "link", "nowhere", "d/.x.0123.ags1-tmp"}
    links = {skipped[name] for name in ("up", "null", "link", "nowhere")}
    assert links == {"is a link, which is not followed"}


def test_what_an_interrupted_run_left_in_the_source_is_no_data(tmp_path: Path, client: CountingKms) -> None:
    left = ["old/_ags1/runs/4f1c2a9be07d/run.json", "old/_ags1/runs/4f1c2a9be07d/done-000001.sealed",
            "old/.a.0123456789ab.ags1-tmp"]  # fmt: skip
    make(tmp_path / "raw", ["a", "old/b", "old/_ags1/mine", *left])
    for again in (False, True):
        made = dataset.encrypt(tmp_path / "raw", tmp_path / f"vault-{again}", client, "lake", again=again)
        assert made.report is not None
        assert {path for path, _ in made.report.skipped} == set(left)
        assert set(plain_of(made)) == {"a", "old/b", "old/_ags1/mine"}


def test_the_target_is_no_part_of_its_source(tmp_path: Path) -> None:
    make(tmp_path, ["a", "vault/b"])
    found = scan(Location(tmp_path), "", Filter(), Location(tmp_path / "vault"), lambda path, why: None)
    assert [each.path for each in found] == ["a"]


@pytest.mark.parametrize(("name", "prefix"), [("_ags1/x", ""), ("x", "_ags1")])
def test_a_reserved_path_is_refused(tmp_path: Path, name: str, prefix: str) -> None:
    make(tmp_path, [name])
    with pytest.raises(ValueError, match="is reserved for the dataset itself"):
        found_in(Location(tmp_path), prefix)


def test_a_source_may_be_one_file(tmp_path: Path) -> None:
    make(tmp_path, ["one"])
    ((found,), _) = found_in(Location(tmp_path / "one"), "top")
    assert (found.path, found.source) == ("top/one", "")
    assert read_same(found.location, found.identity) == b"one"
    with pytest.raises(FileNotFoundError):
        found_in(Location(tmp_path / "none"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="neither a file nor a directory"):
        found_in(Location(tmp_path / "pipe"))


# -- changes -------------------------------------------------------------------------------------------------------


def same_size_and_time(path: Path) -> None:
    seen = path.stat()
    path.write_bytes(bytes(seen.st_size))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def another_file(path: Path) -> None:
    seen = path.stat()
    other = path.with_name("other")
    other.write_bytes(bytes(seen.st_size))
    os.utime(other, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    other.rename(path)


def longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def shorter(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES = (same_size_and_time, another_file, longer, shorter, pipe)


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changed_since_it_was_listed_is_refused(tmp_path: Path, change: object) -> None:
    make(tmp_path, ["file"])
    ((found,), _) = found_in(Location(tmp_path))
    assert read_same(found.location, found.identity) == b"file"
    change(tmp_path / "file")  # type: ignore[operator]
    with pytest.raises(OSError, match=r"was changed|not a regular file") as small:
        read_same(found.location, found.identity)
    assert small.value.errno in (errno.EBUSY, errno.EINVAL)
    with (
        pytest.raises(OSError, match=r"was changed|not a regular file"),
        open_same(found.location, found.identity),
    ):
        pytest.fail("it was opened")


def test_a_directory_in_place_of_a_source_is_refused(tmp_path: Path) -> None:
    make(tmp_path, ["file"])
    ((found,), _) = found_in(Location(tmp_path))
    directory(tmp_path / "file")
    with pytest.raises(OSError, match=r"directory|regular"):
        read_same(found.location, found.identity)
    with pytest.raises(OSError, match=r"directory|regular"), open_same(found.location, found.identity):
        pytest.fail("it was opened")


@pytest.mark.parametrize("change", CHANGES[:4])
def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path: Path, change: object) -> None:
    make(tmp_path, ["file"])
    ((found,), _) = found_in(Location(tmp_path))

    def read() -> None:
        with open_same(found.location, found.identity) as source:
            source.read(0, 2)
            change(tmp_path / "file")  # type: ignore[operator]
            if change is another_file:
                # What is open is still the file that was listed; only its number of names has changed.
                assert bytes(memoryview(source.read(2, 2))) == b"le"

    with pytest.raises(OSError, match="was changed while") as error:
        read()
    assert error.value.errno == errno.EBUSY


def test_an_object_that_was_replaced_is_refused(s3_server: S3Server, s3_bucket: str) -> None:
    client = s3_server.client()
    root = Location(f"s3://{s3_bucket}/raw", s3_server.storage_options())
    for name, size in (("small", 5), ("large", 3 << 20)):
        client.put_object(Bucket=s3_bucket, Key=f"raw/{name}", Body=bytes(size))
    found = {each.path: each for each in found_in(root)[0]}
    assert all(each.identity.etag for each in found.values())
    assert bytes(memoryview(read_same(found["small"].location, found["small"].identity))) == bytes(5)
    large = found["large"]

    def read() -> None:
        with open_same(large.location, large.identity) as source:
            source.read(1 << 20, 5)
            client.put_object(Bucket=s3_bucket, Key="raw/large", Body=b"x" * (3 << 20))
            source.read(2 << 20, 5)

    with pytest.raises(OSError, match="was changed while") as error:
        read()
    assert error.value.errno == errno.EBUSY
    client.put_object(Bucket=s3_bucket, Key="raw/small", Body=b"other")
    with pytest.raises(OSError, match="was changed while"):
        read_same(found["small"].location, found["small"].identity)
    with pytest.raises(OSError, match="was changed while"), open_same(large.location, large.identity):
        pytest.fail("it was opened")


def test_objects_that_mark_directories_are_no_files(s3_server: S3Server, s3_bucket: str) -> None:
    client = s3_server.client()
    for name in ("raw/d/", "raw/d/x", "raw/alone/", "raw/empty"):
        client.put_object(Bucket=s3_bucket, Key=name, Body=b"")
    found, skipped = found_in(Location(f"s3://{s3_bucket}/raw", s3_server.storage_options()))
    assert [each.path for each in found] == ["d/x", "empty"]
    assert not skipped


def test_a_source_without_any_identity_is_never_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that tells neither an etag nor a time: an equal length says nothing."""
    fsspec = pytest.importorskip("fsspec")
    client = CountingKms("lake")
    for name, known, wanted in (
        ("nothing", SourceIdentity(6), 1),
        ("time", SourceIdentity(6, mtime_ns=1), 0),
        ("etag", SourceIdentity(6, etag="x"), 0),
    ):
        where = f"memory://{tmp_path.name}-{name}"
        fsspec.filesystem("memory").pipe_file(f"{where}/a", b"before")
        monkeypatch.setattr(sources, "_identity_of", lambda found, known=known: known)
        monkeypatch.setattr(sources, "_is_same_entry", lambda found, identity: True)
        with dataset.encrypt(where, tmp_path / name, client, "lake") as vault:
            assert vault.report is not None
            assert vault.report.done == 1
        fsspec.filesystem("memory").pipe_file(f"{where}/a", b"behind")
        with dataset.encrypt(where, tmp_path / name, client, "lake") as vault:
            assert vault.report is not None
            assert vault.report.done == wanted, name
            assert plain_of(vault) == {"a": b"behind" if wanted else b"before"}


def test_http_headers_are_an_identity() -> None:
    for info, wanted in (
        ({"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, (1445412480 * 10**9, None)),
        ({"Last-Modified": "never"}, (0, None)),
        ({"ETag": '"x"', "Digest": "y"}, (0, '"x"')),
        ({"Content-MD5": "z"}, (0, "z")),
        ({}, (0, None)),
    ):
        assert (listing._modified(info), listing._etag(info)) == wanted


def test_a_listing_in_milliseconds_and_an_answer_in_seconds_are_one_time() -> None:
    here = Location("memory://x/a")
    for found, listed, wanted in (
        (5_000_000_000, 5_123_000_000, True),
        (5_123_000_000, 5_000_000_000, True),
        (5_123_000_000, 5_124_000_000, False),
        (6_000_000_000, 5_123_000_000, False),
    ):
        assert sources._is_same_entry(Entry("a", here, 1, found), SourceIdentity(1, listed)) is wanted
    assert "has no ETag" in str(sources.refuse_changed("x", SourceIdentity(1, 1)))
    assert "ETag" not in str(sources.refuse_changed("x", SourceIdentity(1, 1, etag="e")))
