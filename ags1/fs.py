"""An fsspec file system over an encrypted dataset: libraries that use fsspec read the plaintext.

    fsspec.filesystem("ags1", target="vault", kms="local:keys.json").open("a/b.parquet")
    fsspec.open("ags1://a/b.parquet::file://vault", ags1={"kms": "local:keys.json"})
    pandas.read_parquet("ags1://a/b.parquet", storage_options={"target": "vault", "kms": client})

It is read-only. Only the requested plaintext is decrypted, in memory: nothing is cached or written to the disk. Needs
the extra "fsspec".
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Mapping

from ags1.support.typing import Any, NoReturn

try:
    from fsspec import register_implementation
    from fsspec.spec import AbstractFileSystem
except ImportError as error:
    raise ImportError("ags1.fs needs fsspec: pip install 'ags1[fsspec]'") from error

from ags1 import dataset as datasets
from ags1.dataset import Dataset, DatasetEntry

__all__ = ["Ags1FileSystem", "register"]


class Ags1FileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The plaintext of a dataset's files.

    Parameters
    ----------
    target : path, URL or Dataset
        Location of the dataset. In a chained URL, the part after ``::``.
    kms : client or URL
        As :func:`ags1.dataset.open`; by default the URL in the variable ``AGS1_KMS``. Not needed with a Dataset.
    version, expected_version, expected_uuid, expected_digest, key_id, threads
        As :func:`ags1.dataset.open`: the version to show, by default the last one, and its required properties.
    target_options : mapping, optional
        Settings for the URL that are not in the environment.
    fo, target_protocol
        Set by fsspec for a chained URL.

    Raises
    ------
    TypeError
        No dataset, or no KMS.
    KeyAccessError, FormatError, AuthenticationError, OSError
        As :func:`ags1.dataset.open`.

    Notes
    -----
    Each instance opens the dataset, with a call to the KMS or two, and shows one version of it. It can be pickled if
    `target` and `kms` are text: the copy opens the dataset again, at `version` or else at its last version.
    """

    protocol = "ags1"
    root_marker = ""
    # An instance shows the version at its creation: a later one may have to show a newer version.
    cachable = False

    def __init__(
        self,
        target: str | os.PathLike[str] | Dataset | None = None,
        kms: Any = None,
        *,
        version: int | None = None,
        expected_version: int | None = None,
        expected_uuid: str | None = None,
        expected_digest: str | None = None,
        key_id: str | None = None,
        threads: int | None = None,
        fo: str | None = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        **storage_options: Any,
    ) -> None:
        super().__init__(**storage_options)
        if isinstance(target, Dataset):
            self.dataset = target
            return
        where: Any = target if target is not None else fo
        if where is None:
            raise TypeError("target is needed: the directory of the dataset, as in ags1://path::file://vault")
        if kms is None:
            kms = os.environ.get("AGS1_KMS")
        if not kms:
            raise TypeError(
                "kms is needed: a client of ags1.kms, a URL such as local:keys.json, or the variable AGS1_KMS"
            )
        options: Mapping[str, Any] | None = target_options
        if target is None and target_protocol is not None:
            where, options = _unchained(str(fo), target_protocol, target_options or {})
        self.dataset = datasets.open(
            where, kms,
            version=version, expected_version=expected_version, expected_uuid=expected_uuid,
            expected_digest=expected_digest, key_id=key_id, threads=threads, storage_options=options,
        )  # fmt: skip

    # -- files and directories -------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        name = os.fspath(path).partition("::")[0]
        return name.removeprefix("ags1://").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        """The path with its protocol."""
        return f"ags1://{self._strip_protocol(name)}"

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        """List a directory, or one file."""
        name = self._strip_protocol(path)
        found = [
            self._info(f"{name}/{child}" if name else child, entry)
            for child, entry in self.dataset.files.children(name)
        ]
        if not found and name:
            itself = self.info(name)
            found = [] if itself["type"] == "directory" else [itself]
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Name, type and plaintext size of a path.

        Raises
        ------
        FileNotFoundError
            There is no such file or directory.
        """
        name = self._strip_protocol(path)
        if not name:
            return self._info("", None)
        try:
            return self._info(name, self.dataset.files[name])
        except IsADirectoryError:
            return self._info(name, None)

    def _info(self, name: str, entry: DatasetEntry | None) -> dict[str, Any]:
        if entry is None:
            return {"name": name, "size": 0, "type": "directory"}
        return {
            "name": name,
            "size": entry.plaintext_length,
            "type": "file",
            "encrypted_length": entry.file_length,
            "mtime": entry.source.mtime_ns / 1e9 if entry.source is not None and entry.source.mtime_ns else None,
        }

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is a file or a directory of that name."""
        name = self._strip_protocol(path)
        return not name or name in self.dataset.files or self.dataset.files.is_directory(name)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """List all files below a path."""
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        name = self._strip_protocol(path)
        found = {entry.path: self._info(entry.path, entry) for entry in self._below(name)}
        return found if detail else list(found)

    def _below(self, name: str) -> Iterator[DatasetEntry]:
        if name and name in self.dataset.files:
            yield self.dataset.files[name]
            return
        yield from self.dataset.files.below(name)

    def modified(self, path: str) -> Any:
        """Time at which the source of a file was last modified."""
        import datetime

        mtime = self.info(path).get("mtime")
        if mtime is None:
            raise FileNotFoundError(errno.ENOENT, "has no time of modification", path)
        return datetime.datetime.fromtimestamp(mtime, datetime.timezone.utc)

    def ukey(self, path: str) -> str:
        """A key that changes with the file: changed content is always a new object."""
        return f"{self.dataset.uuid}/{self.dataset.files[self._strip_protocol(path)].parts[0].name}"

    # -- reading ---------------------------------------------------------------------------------------------------

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file for reading its plaintext, as bytes or as text."""
        if "r" not in mode or "+" in mode:
            self._refuse(path)
        if "b" not in mode:
            text = {name: kwargs.pop(name) for name in ("encoding", "errors", "newline") if name in kwargs}
            return io.TextIOWrapper(self.open(path, "rb", block_size, cache_options, compression, **kwargs), **text)
        return super().open(path, "rb", block_size, cache_options, compression, **kwargs)

    def _open(self, path: str, mode: str = "rb", *arguments: Any, **kwargs: Any) -> Any:
        return self.dataset.open(self._strip_protocol(path))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """All of a file, or a range; only its blocks are decrypted."""
        with self.dataset.open(self._strip_protocol(path)) as reader:
            size = reader.size or 0
            first, stop, _ = slice(start, end).indices(size)
            whole = first == 0 and stop == size
            data: bytes = reader.readall() if whole else reader.pread(first, max(0, stop - first))
            return data

    # -- not supported ---------------------------------------------------------------------------------------------

    def _refuse(self, path: Any, *arguments: Any, **kwargs: Any) -> NoReturn:
        """Refuse: it is read-only."""
        raise OSError(errno.EROFS, "ags1:// is read-only: add files with ags1.dataset", str(path))

    def _refuse_target(self, source: Any, target: Any, *arguments: Any, **kwargs: Any) -> NoReturn:
        """Refuse: it is read-only."""
        self._refuse(target)

    mkdir = makedirs = rmdir = rm = rm_file = _rm = mv = touch = pipe_file = _refuse
    cp_file = put_file = _refuse_target

    def created(self, path: str) -> Any:
        """Refuse: the time of creation is not recorded."""
        raise NotImplementedError("a dataset does not know when a file was created")


def _unchained(path: str, protocol: str, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Restore the URL and options after ``::`` in a chained URL from the arguments that fsspec made of them."""
    if "target_protocol" in options:
        # Such as simplecache::s3://bucket/vault: fsspec names the options of each link by its protocol.
        inner = options["target_protocol"]
        url, theirs = _unchained(str(options.get("fo", path)), inner, options.get("target_options") or {})
        mine = {name: options[name] for name in options if name not in ("target_protocol", "target_options", "fo")}
        return f"{protocol}::{url}", {inner: theirs, protocol: mine}
    return path if "://" in path else f"{protocol}://{path}", options


def register() -> None:
    """Register ``ags1://`` with fsspec. An installed package is registered already, by its entry point."""
    register_implementation(Ags1FileSystem.protocol, Ags1FileSystem, clobber=True)
