"""Manifests in levels: the files of a sorted dictionary, whatever is put, removed and compared, and little is read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import ags1.dataset.manifests as module
from ags1.dataset.entries import DatasetEntry, Part
from ags1.dataset.manifests import Editor, ManifestNode, Manifests, changes
from ags1.errors import AuthenticationError, FormatError
from ags1.keys import KeyMetadata
from ags1.storage import Location

RUN = "0123456789ab"

Files = dict[str, DatasetEntry]


def entry(path: str, rng: random.Random) -> DatasetEntry:
    name = f"{path}.{RUN}-{rng.getrandbits(32):08x}.ags1"
    return DatasetEntry(path, (Part(name, rng.randrange(100), b"sealed"),), 1)


def edited(manifests: Manifests, root: ManifestNode | None, puts: Files, removed: set[str]) -> ManifestNode | None:
    editor = Editor(manifests, root, RUN)
    for path in sorted({*puts, *removed}, key=str.encode):
        if path in removed:
            editor.remove(path)
        else:
            editor.put(puts[path])
    return editor.finish()


def node_lengths(manifests: Manifests, node: ManifestNode) -> list[int]:
    """Lengths of all nodes; each is one level above what is below it."""
    below = manifests.children(node)
    found = [len(below)]
    for each in below:
        if isinstance(each, ManifestNode):
            assert each.level == node.level - 1
            found += node_lengths(manifests, each)
    return found


@pytest.fixture
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAN_OUT", 8)
    monkeypatch.setattr(module, "_SMALL", 2)


@pytest.mark.usefixtures("small_nodes")
@pytest.mark.parametrize("seed", range(4))
def test_any_changes_give_the_files_of_a_sorted_dictionary(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    manifests = Manifests(Location(tmp_path), "uuid")
    root: ManifestNode | None = None
    model: Files = {}
    history: list[tuple[ManifestNode | None, Files]] = [(None, {})]
    for step in range(25):
        count = rng.choice([1, 1, 1, 3, 10, 50, 200])
        kind = rng.random()
        if kind < 0.3:
            paths = {f"{step:04d}/{index:04d}" for index in range(count)}
        elif kind < 0.5:
            paths = {f"zz{step:04d}"}
        else:
            paths = {f"{rng.randrange(60):04d}/{rng.randrange(300):04d}" for _ in range(count)}
        if model and rng.random() < 0.3:
            paths |= set(rng.sample(sorted(model), min(len(model), 3 * count)))
        editor, now = Editor(manifests, root, RUN), dict(model)
        for path in sorted(paths):
            if rng.random() < 0.35:
                assert editor.remove(path) == now.pop(path, None)
            else:
                new = entry(path, rng)
                assert editor.put(new) == now.get(path)
                now[path] = new
        after = editor.finish()
        assert list(manifests.files(after)) == [now[path] for path in sorted(now)]
        assert (0 if after is None else after.file_count) == len(now)
        if after is not None:
            assert max(node_lengths(manifests, after)) <= 16
        for path in [*rng.sample(sorted(now), min(3, len(now))), "missing"]:
            assert manifests.find(after, path) == now.get(path)
        prefix = rng.choice(["00", "0001/", "zz", "0001/02", "missing/"])
        assert [each.path for each in manifests.files(after, prefix)] == [
            path for path in sorted(now) if path.startswith(prefix)
        ]
        directory = rng.choice(["", "0001", "0002"])
        above = f"{directory}/" if directory else ""
        names = {path[len(above) :].partition("/")[0] for path in now if path.startswith(above)}
        assert [name for name, _ in manifests.names_below(after, directory)] == sorted(names)
        history.append((after, now))
        other, files = rng.choice(history)
        differ = [path for path in sorted({*files, *now}) if files.get(path) != now.get(path)]
        assert list(changes(manifests, other, after)) == [(files.get(path), now.get(path)) for path in differ]
        assert list(changes(manifests, after, other)) == [(now.get(path), files.get(path)) for path in differ]
        root, model = after, now


@pytest.mark.usefixtures("small_nodes")
def test_appends_fill_nodes_up(tmp_path: Path) -> None:
    rng = random.Random(1)
    manifests = Manifests(Location(tmp_path), "uuid")
    root: ManifestNode | None = None
    for index in range(300):
        root = edited(manifests, root, {f"{index:06d}": entry(f"{index:06d}", rng)}, set())
    assert root is not None
    lengths = node_lengths(manifests, root)
    assert len(lengths) < 80
    assert root.level <= 3


def test_one_file_more_writes_one_manifest_a_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAN_OUT", 16)
    monkeypatch.setattr(module, "_SMALL", 4)
    rng = random.Random(2)
    writer = Manifests(Location(tmp_path), "uuid")
    root = edited(writer, None, {f"{index:05d}": entry(f"{index:05d}", rng) for index in range(4000)}, set())
    assert root is not None
    assert root.level == 2
    for path in ("00000x", "02000x", "03999x", "00000"):
        fresh = Manifests(Location(tmp_path), "uuid")
        before = set((tmp_path / "_ags1/manifests").iterdir())
        read: list[str] = []
        original = fresh._read
        monkeypatch.setattr(
            fresh, "_read", lambda name, *rest, original=original, read=read: read.append(name) or original(name, *rest)
        )
        after = edited(fresh, root, {path: entry(path, rng)}, set())
        assert after is not None
        written = set((tmp_path / "_ags1/manifests").iterdir()) - before
        # A node that is full is cut in two, the root too.
        assert len(written) <= 2 * (root.level + 1) + 1
        assert len(read) <= 2 * (root.level + 1)
        assert list(changes(fresh, root, after)) == [(writer.find(root, path), fresh.find(after, path))]


def test_a_manifest_of_another_dataset_or_level_or_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    manifests = Manifests(Location(tmp_path), "uuid")
    leaf = manifests.write(0, [entry("a", rng), entry("b", rng)], RUN)
    other = manifests.write(0, [entry("a", rng), entry("c", rng)], RUN)
    wrong = ManifestNode(0, leaf.first, leaf.last, 2, leaf.plaintext_bytes, other.name, other.key_metadata)
    with pytest.raises(FormatError, match="is not the manifest"):
        Manifests(Location(tmp_path), "uuid").children(wrong)
    with pytest.raises(FormatError, match="no manifest of this dataset"):
        Manifests(Location(tmp_path), "other").children(leaf)
    swapped = ManifestNode(0, leaf.first, leaf.last, 2, leaf.plaintext_bytes, other.name, leaf.key_metadata)
    with pytest.raises((AuthenticationError, FormatError)):
        Manifests(Location(tmp_path), "uuid").children(swapped)
    inner = ManifestNode(1, leaf.first, leaf.last, 2, leaf.plaintext_bytes, leaf.name, leaf.key_metadata)
    with pytest.raises(FormatError, match="another level"):
        Manifests(Location(tmp_path), "uuid").children(inner)
    with monkeypatch.context() as careless:
        careless.setattr(module, "pairwise", lambda ends: ())
        unsorted = manifests.write(0, [entry("b", rng), entry("a", rng)], RUN)
    metadata, reader = KeyMetadata.decode(unsorted.key_metadata), Manifests(Location(tmp_path), "uuid")
    with pytest.raises(FormatError, match="in no order"):
        reader.root(unsorted.name, metadata, 2, unsorted.plaintext_bytes)


def test_a_node_shows_no_key(tmp_path: Path) -> None:
    manifests = Manifests(Location(tmp_path), "uuid")
    leaf = manifests.write(0, [entry("a", random.Random(4))], RUN)
    key = bytes(KeyMetadata.decode(leaf.key_metadata).encryption_key)
    assert key.hex() not in repr(leaf)
    assert repr(key)[2:-1] not in repr(leaf)
