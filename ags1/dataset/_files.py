"""The files of a version, as a collection."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

from ags1.dataset._arguments import Path, relative
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.manifests import DatasetView, ManifestNode
from ags1.dataset.names import sort_key


class Leaf:
    """Neighbouring files of a version, some hundred, which one object of its manifests lists; it is read on request.

    Attributes
    ----------
    first, last : str
        Paths of its first and its last entry.
    file_count, plaintext_bytes : int
        Number of its files, and their bytes.
    """

    __slots__ = ("_node", "_view", "file_count", "first", "last", "plaintext_bytes")

    def __init__(self, view: DatasetView, node: ManifestNode) -> None:
        self._view, self._node = view, node
        self.first, self.last = (each.decode("utf-8", "surrogateescape") for each in (node.first, node.last))
        self.file_count, self.plaintext_bytes = node.file_count, node.plaintext_bytes

    def sizes(self) -> list[tuple[str, int, int]]:
        """Path, bytes of plaintext and bytes of the objects of each entry; the path of a directory ends in ``/``."""
        return self._view.manifests.children(self._node, keep=False).sizes()

    def __repr__(self) -> str:
        return f"<ags1.dataset.Leaf of {self.file_count} files from {self.first}>"


class Files:
    """The files of one version of a dataset, in the order of their paths. They are not kept in memory.

    Iteration yields :class:`DatasetEntry` objects. ``len()``, ``path in files`` and ``files[path]`` are fast for any
    number of files.
    """

    def __init__(self, view: Callable[[], DatasetView], name: str) -> None:
        self._view = view
        self._name = name

    def __len__(self) -> int:
        return self._view().version.file_count

    def __iter__(self) -> Iterator[DatasetEntry]:
        return self.below("")

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        view = self._view()
        return view.manifests.find(view.root, relative(path)) is not None

    def __getitem__(self, path: Path) -> DatasetEntry:
        """The entry of a path.

        Raises
        ------
        FileNotFoundError
            The dataset has no such file.
        IsADirectoryError
            It is a directory.
        """
        view, name = self._view(), relative(path)
        found = view.manifests.find(view.root, name)
        if found is None:
            if view.manifests.has_below(view.root, name):
                raise IsADirectoryError(errno.EISDIR, "is a directory of the dataset", name)
            raise FileNotFoundError(errno.ENOENT, "the dataset has no such file", name)
        return found

    def below(self, directory: str) -> Iterator[DatasetEntry]:
        """The files below a directory, "" for all."""
        view, name = self._view(), relative(directory) if directory else ""
        return view.manifests.files(view.root, f"{name}/" if name else "")

    def entries(self) -> Iterator[DatasetEntry]:
        """All files and directories; the paths of directories end in ``/``."""
        view = self._view()
        return view.manifests.entries(view.root)

    def leaves(self, directory: str = "") -> Iterator[Leaf]:
        """All files in portions. The first and the last portion may have others than those below `directory`."""
        view, name = self._view(), relative(directory) if directory else ""
        key = sort_key(f"{name}/" if name else "")
        return (Leaf(view, node) for node in view.manifests.leaves(view.root, key, key))

    def directories(self, directory: str = "") -> Iterator[DatasetEntry]:
        """The empty directories below a directory, and itself if it is one; their paths end in ``/``."""
        view, name = self._view(), relative(directory) if directory else ""
        return view.manifests.directories(view.root, f"{name}/" if name else "")

    def children(self, directory: str = "") -> Iterator[tuple[str, DatasetEntry | None]]:
        """Names in a directory, each with its entry, or None for a directory."""
        view = self._view()
        return view.manifests.names_below(view.root, relative(directory) if directory else "")

    def is_directory(self, path: str) -> bool:
        """Whether a path is a directory, or there are files below it."""
        view = self._view()
        return view.manifests.has_below(view.root, relative(path) if path else "")

    def __repr__(self) -> str:
        return f"<ags1.dataset.Files of {self._name}>"
