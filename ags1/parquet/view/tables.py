"""Encrypted Parquet files as Arrow tables and datasets, through their plaintext views."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing

from ags1.errors import AuthenticationError, KeyAccessError
from ags1.parquet.keys.columns import ColumnNames
from ags1.parquet.keys.properties import DecryptionConfig
from ags1.parquet.verify.expected import Expected, ExpectedFiles, refuse_other_set
from ags1.parquet.view.view import MISSING_KEYS, ParquetView, column_names, names_of, or_dropped
from ags1.storage import SMALL_FILES_AT_ONCE, Location, file_system_of, guarded, is_url
from ags1.support.arguments import one_of
from ags1.support.parallel import in_parallel
from ags1.support.typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

Path = tuple[str, ...]
Keys = DecryptionConfig | Mapping[Any, DecryptionConfig] | Callable[[str], DecryptionConfig]

_OWN_DECRYPTION = "it is for PyArrow's own decryption; give a DecryptionConfig as decryption"
_REFUSED_BY_READ_TABLE = {
    "decryption_properties": _OWN_DECRYPTION,
    "filesystem": "give the source as a path, a URL or an open file",
    "memory_map": "reads return decrypted memory; to map the source, give it as an mmap",
}
_REFUSED_BY_DATASET = {
    "decryption_properties": _OWN_DECRYPTION,
    "exclude_invalid_files": "files that were changed, or whose keys are missing, would be skipped",
}
# Arguments of read_table for a directory; others are for the format of single files.
_OF_DIRECTORIES = frozenset({"schema", "partitioning", "ignore_prefixes"})
_MAGIC = frozenset("*?[")
_IGNORED = (".", "_")


def read_table(
    source: Any,
    decryption: Keys | None,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    *,
    missing_keys: str = "error",
    expected: Expected | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> pyarrow.Table:
    """Read an encrypted Parquet file or a directory of them, or some columns and rows.

    Only pages of the needed columns and row groups are read and decrypted, and only their keys are needed.

    Parameters
    ----------
    source, decryption, threads, storage_options
        As :func:`open`; or, as for :func:`dataset`, a local directory or a URL that ends in ``/``. ``use_threads`` is
        PyArrow's option for decoding.
    columns : list of str, optional
        Columns to read, as in ``pyarrow.parquet.read_table``: top-level columns, or fields of structs with dots.
    filters : pyarrow.compute.Expression, or list, optional
        Rows to read, as in ``pyarrow.parquet.read_table``.
    missing_keys : {"error", "drop"}
        Raise an error for a requested column whose key is missing, or leave the column out. A filter on such a column
        is always an error. If the filter for a directory is an expression, keys of all columns are needed, or "drop".
    expected
        The files of a directory, as for :func:`dataset`.
    **options
        Of ``pyarrow.parquet.read_table``: schema, read_dictionary, use_threads, ...; `pre_buffer` is False by default,
        which is faster here. For a directory: schema, partitioning, ignore_prefixes, use_threads.

    Returns
    -------
    pyarrow.Table
        The table that PyArrow reads from the file or directory before encryption.

    Raises
    ------
    KeyAccessError
        A key is missing.
    AuthenticationError, FormatError, TruncatedError, ValueError
        As :func:`open` and :func:`dataset`.
    pyarrow.ArrowException, OSError
        PyArrow cannot read the file, or does not accept the arguments.

    Examples
    --------
    >>> read_table("out.parquet", decryption, ["name", "salary"], [("salary", ">", 1000)])
    """
    import pyarrow
    import pyarrow.parquet

    _refuse(options, _REFUSED_BY_READ_TABLE)
    one_of(missing_keys, MISSING_KEYS, "missing_keys")
    names = None if columns is None else _listed(columns)
    directory = _directory(source, storage_options)
    if directory is not None:
        keys = DecryptionConfig(allow_plaintext=True) if decryption is None else decryption
        return _read_directory(directory, keys, names, filters, missing_keys, expected, threads, options)
    if expected is not None:
        raise ValueError("expected names the files of a directory: give a directory, or a URL that ends in /")
    if decryption is not None and not isinstance(decryption, DecryptionConfig):
        raise TypeError(f"decryption must be a DecryptionConfig for a single file, not {type(decryption).__name__}")
    view = ParquetView(source, decryption, missing_keys="drop", threads=threads, storage_options=storage_options)
    try:
        paths = view._paths
        missing = view._missing
        filtered = _filtered(filters)
        present = None
        if names is not None:
            known: set[str] = set().union(*(names_of(path) for path in paths))
            # Raises if there are any; the message has the existing names.
            ColumnNames([name for name in names if name not in known], lambda one, other: True).resolve(paths)
            # The rest of a column when the fields without keys are left out.
            shown = set().union(*(names_of(path) for path in paths if path not in missing))
            present = [name for name in names if name in shown]
        for path, error in missing.items():
            prefixes = names_of(path)
            wanted = names is None or not prefixes.isdisjoint(names)
            if not prefixes.isdisjoint(filtered):
                raise error
            if wanted and missing_keys == "error":
                raise or_dropped(error)
        options.setdefault("pre_buffer", False)
        if filters is None:
            # PyArrow decides which row groups pass a filter.
            view.will_read(present)
        try:
            return pyarrow.parquet.read_table(view, columns=present, filters=filters, **options)
        except pyarrow.ArrowInvalid as error:
            _raise_for_missing(error, missing)
            raise
    finally:
        view.close()


def _raise_for_missing(error: Exception, missing: Mapping[Path, KeyAccessError]) -> None:
    """Raise the error of a missing key if PyArrow did not find its column: an expression has no list of columns."""
    for path, reason in missing.items():
        if f"FieldRef.Name({path[0]})" in str(error).partition(" in ")[0]:
            raise reason from error


def _directory(source: Any, storage_options: Mapping[str, Any] | None) -> Location | None:
    if not isinstance(source, (str, os.PathLike)):
        return None
    place = Location(source, storage_options)
    return place if (os.path.isdir(place.path) if place.is_local else place.text.endswith("/")) else None


def _read_directory(
    place: Location,
    decryption: Keys,
    columns: list[str] | None,
    filters: Any,
    missing_keys: str,
    expected: Expected | None,
    threads: int | None,
    options: dict[str, Any],
) -> pyarrow.Table:
    import pyarrow
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.parquet

    use_threads = options.pop("use_threads", True)
    others = sorted(options.keys() - _OF_DIRECTORIES)
    if others:
        raise TypeError(f"{others[0]} is for single files: for a directory, give dataset() a format with it")
    # As PyArrow's read_table has it.
    options.setdefault("partitioning", pyarrow.dataset.HivePartitioning.discover(infer_dictionary=True))
    needed = None
    if missing_keys == "error" and columns and not isinstance(filters, pyarrow.compute.Expression):
        needed = [*columns, *sorted(_filtered(filters))]
    files = _Files(place.text, None, place.storage_options)
    found, views = _dataset(files, decryption, needed, missing_keys, expected, threads, options)
    if columns is not None:
        unknown = [name for name in columns if not _has(found.schema, name)]
        lost = set().union(*(names_of(path) for path in views.missing))
        wrong = [name for name in unknown if name not in lost]
        if wrong:
            raise ValueError(f"the dataset has no column {wrong[0]!r}; it has {', '.join(found.schema.names)}")
        columns = [name for name in columns if name not in unknown]
    for path, reason in views.missing.items():
        if not names_of(path).isdisjoint(_filtered(filters)):
            raise reason
    condition = None if filters is None else pyarrow.parquet.filters_to_expression(filters)
    try:
        return found.to_table(columns=columns, filter=condition, use_threads=use_threads)
    except pyarrow.ArrowInvalid as error:
        _raise_for_missing(error, views.missing)
        raise


def dataset(
    paths: Any,
    decryption: Keys,
    *,
    columns: Sequence[Any] | None = None,
    missing_keys: str = "error",
    expected: Expected | None = None,
    threads: int | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> pyarrow.dataset.FileSystemDataset:
    """Make a ``pyarrow.dataset.Dataset`` of encrypted Parquet files.

    The dataset works on plaintext views of the files. Projections and filters prune columns, row groups, files and
    partitions, which are then neither read nor decrypted. DuckDB, polars (``scan_pyarrow_dataset``) and others query it
    as they query any dataset.

    Parameters
    ----------
    paths : path, URL, glob, or list of these
        A directory with all files below it, a file, a pattern (``**`` for any directories), or a list of files and
        patterns. In directories and patterns, names that begin with a dot or an underscore are skipped, including key
        material files.
    decryption : DecryptionConfig, callable, or mapping of path to DecryptionConfig
        One for all files; or a function that returns one for the path of a file below the directory, as for
        :func:`verify_tree` (of other `paths`: for a path or URL), or raises KeyAccessError. Several threads call it at
        once. Plaintext files are refused unless ``allow_plaintext=True``.
    columns : sequence of names, optional
        Make a dataset of these columns only; keys of others are not needed. A name is the path of a leaf or of a
        group, with dots or as a tuple. Files may lack some of them, as in every dataset.
    missing_keys : {"error", "drop"}
        If the key of a column is missing: refuse the file when it is opened, or leave the column out. If the column is
        in the dataset because of other files, the file is always refused, because its values would become nulls.
    expected : str, bytes, path or iterable of str and bytes, optional
        The files of the set, as for :func:`verify_tree`: names as str (paths below a directory, else base names), AAD
        prefixes as bytes. For prefixes, every footer is read here, and a file must keep its prefix afterwards.
    threads : int, optional
        Threads to decrypt with, for each file that is being scanned; by default every usable CPU.
    filesystem : fsspec or pyarrow file system, optional
        The file system of the paths, if a URL cannot contain all its options.
    storage_options : mapping, optional
        Endpoint, credentials and similar options for URLs, with the names of fsspec.
    **options
        Of ``pyarrow.dataset.dataset``: schema, partitioning ("hive" by default), partition_base_dir, ignore_prefixes;
        format, if it is a ``ParquetFileFormat``.

    Returns
    -------
    pyarrow.dataset.FileSystemDataset
        Can be shared between threads, but not pickled: it holds keys.

    Raises
    ------
    KeyAccessError, AuthenticationError, FormatError, TruncatedError, OSError
        As :func:`read_table`: raised here for the first file, and by the scan for others. A FormatError too if files
        are missing or not `expected`.
    FileNotFoundError
        A file does not exist, or no file matches a pattern.
    TypeError, ValueError
        A wrong argument, or a column that the dataset does not have.

    Notes
    -----
    The schema is that of the first file, unless one is given. A scan opens each file once: it reads the footer, gets
    the keys, and closes the file after its last batch. Arrow's threads decrypt and decode several files at once; reads
    of one file wait for each other. Arrow's threads do not survive a fork.

    A directory as a whole is not protected. Each file is authenticated separately, so files that were replaced by older
    copies, and changed values in directory names are not detected; added and removed files only with `expected`. A
    callable that gives each path its own AAD prefix detects exchanged files; prefixes as `expected` are compared as a
    set, and do not.

    Examples
    --------
    >>> people = dataset("s3://bucket/people", decryption)
    >>> people.to_table(columns=["name"], filter=pyarrow.compute.field("country") == "CH")
    """
    files = _Files(paths, filesystem, storage_options)
    found, _ = _dataset(files, decryption, columns, missing_keys, expected, threads, options)
    return found


def _dataset(
    files: _Files,
    decryption: Keys,
    columns: Sequence[Any] | None,
    missing_keys: str,
    expected: Expected | None,
    threads: int | None,
    options: dict[str, Any],
) -> tuple[pyarrow.dataset.FileSystemDataset, _Views]:
    import pyarrow.dataset
    from pyarrow.fs import PyFileSystem

    from ags1.parquet.view._file_system import ViewHandler

    _refuse(options, _REFUSED_BY_DATASET)
    one_of(missing_keys, MISSING_KEYS, "missing_keys")
    form = options.pop("format", None)
    if form is None or form == "parquet":
        scan = pyarrow.dataset.ParquetFragmentScanOptions(pre_buffer=False)
        form = pyarrow.dataset.ParquetFileFormat(default_fragment_scan_options=scan)
    elif not isinstance(form, pyarrow.dataset.ParquetFileFormat):
        raise TypeError(f"format must be a pyarrow.dataset.ParquetFileFormat, not {type(form).__name__}")
    names = None if columns is None else column_names(columns, "columns")
    views = _Views(files, decryption, names, missing_keys, threads)
    options.setdefault("partitioning", "hive")
    prefixes = options.get("ignore_prefixes")
    found = pyarrow.dataset.dataset(
        files.found(_IGNORED if prefixes is None else tuple(prefixes)),
        filesystem=PyFileSystem(ViewHandler(files.base, views.open)),
        format=form,
        **options,
    )
    views.promise(found.schema)
    if expected is not None:
        views.require(found.files, ExpectedFiles(expected))
    return found, views


class _Files:
    """The files of a dataset: local, on an fsspec file system, or on an Arrow file system."""

    def __init__(self, paths: Any, file_system: Any, storage_options: Mapping[str, Any] | None) -> None:
        from pyarrow import fs

        several = isinstance(paths, (list, tuple))
        given = [_text(path) for path in (paths if several else [paths])]
        if not given:
            raise ValueError("paths is an empty list")
        self._several = several
        # An fsspec file system, unless the files are local or on an Arrow file system.
        self._remote: Any = None
        self.base: Any
        if file_system is None and any(is_url(path) and not path.startswith("file://") for path in given):
            systems = [file_system_of(Location(path, storage_options)) for path in given]
            self._remote = systems[0][0]
            if any(system != self._remote for system, _ in systems):
                raise ValueError(
                    "the paths are on different file systems: make a dataset of each, and one of all of them with "
                    "pyarrow.dataset.dataset([...])"
                )
            given = [path for _, path in systems]
        elif isinstance(file_system, fs.PyFileSystem) and isinstance(file_system.handler, fs.FSSpecHandler):
            self._remote = guarded(file_system.handler.fs)
        elif hasattr(file_system, "cat_file"):
            self._remote = guarded(file_system)
        elif file_system is None or isinstance(file_system, fs.FileSystem):
            self.base = fs.LocalFileSystem() if file_system is None else file_system
        else:
            raise TypeError(f"filesystem must be a file system of fsspec or pyarrow, not {type(file_system).__name__}")
        if self._remote is not None:
            self.base = fs.PyFileSystem(fs.FSSpecHandler(self._remote))
        self._local = self._remote is None and isinstance(self.base, fs.LocalFileSystem)
        self._given = [self.normal(path) for path in given]
        self.where = "the list of files" if several else self.name(self._given[0])

    def normal(self, path: Any) -> str:
        text = _text(path)
        if self._remote is not None:
            return str(self._remote._strip_protocol(text))
        if self._local:
            return os.path.normpath(text.removeprefix("file://"))
        return str(self.base.normalize_path(text))

    def name(self, path: str) -> str:
        """The name of a file for callables and messages."""
        return str(self._remote.unstrip_protocol(path)) if self._remote is not None else path

    def below(self, path: str) -> str | None:
        """The path of a file below the directory; None if no directory was given."""
        root = self._given[0].rstrip("/") + "/"
        return path[len(root) :] if not self._several and path.startswith(root) else None

    def identity(self, path: Any) -> str:
        """The same text for all spellings of a path."""
        normal = self.normal(path)
        return os.path.abspath(normal) if self._local else normal

    def found(self, ignored: tuple[str, ...]) -> str | list[str]:
        """The directory or file, or the list of files."""
        from pyarrow.fs import FileType

        found: list[str] = []
        for path in self._given:
            kind = self.base.get_file_info(path).type
            if kind == FileType.Directory and not self._several:
                return path
            if kind == FileType.Directory:
                raise IsADirectoryError(21, "Is a directory; a list must have files and patterns", self.name(path))
            if kind != FileType.NotFound:
                found.append(path)
                continue
            matches = self._matches(path, ignored) if not _MAGIC.isdisjoint(path) else []
            if not matches:
                raise FileNotFoundError(2, "No such file or directory", self.name(path))
            found += matches
        # Patterns may overlap.
        return list(dict.fromkeys(found))

    def _matches(self, pattern: str, ignored: tuple[str, ...]) -> list[str]:
        if self._local:
            import glob

            matches = glob.glob(pattern, recursive=True)
        elif self._remote is not None:
            matches = self._remote.glob(pattern)
        else:
            raise ValueError(f"patterns need a file system of fsspec, or local files: {pattern}")
        kept = sorted(path for path in matches if not path.rpartition("/")[2].startswith(ignored))
        return [info.path for info in self.base.get_file_info(kept) if info.is_file] if kept else []

    def view(self, path: str, **arguments: Any) -> ParquetView:
        if self._local:
            return ParquetView(path, **arguments)
        if self._remote is not None:
            # Not the URL, which does not contain the options of the file system. The view makes its own requests.
            with self._remote.open(path, "rb") as file:
                return ParquetView(file, **arguments)
        return ParquetView(self.base.open_input_file(path), **arguments)


class _Views:
    """Opens the views of a dataset's files."""

    def __init__(
        self, files: _Files, decryption: Keys, names: ColumnNames | None, missing_keys: str, threads: int | None
    ) -> None:
        self._files = files
        self._names = names
        self._missing_keys = missing_keys
        self._threads = threads
        self._schema: Any = None
        # Of leaves that were left out, the errors.
        self.missing: dict[Path, KeyAccessError] = {}
        # AAD prefixes of the files of a set, by path.
        self._prefixes: dict[str, bytes | None] = {}
        self._config_for: Callable[[str], Any]
        if isinstance(decryption, DecryptionConfig):
            self._config_for = lambda path: decryption
        elif isinstance(decryption, Mapping):
            known = {files.identity(path): config for path, config in decryption.items()}
            self._config_for = lambda path: known.get(files.identity(path))
        elif callable(decryption):
            # As in verify_tree and decrypt_tree, so that one function gives every reader the AAD prefix of each file.
            self._config_for = lambda path: decryption(files.below(path) or files.name(path))
        else:
            raise TypeError(
                "decryption must be a DecryptionConfig, a callable or a mapping that has one for each path, not "
                f"{type(decryption).__name__}"
            )

    def open(self, path: str) -> ParquetView:
        name = self._files.name(path)
        config = self._config_for(path)
        if config is None:
            raise KeyAccessError(f"{name}: decryption has no DecryptionConfig for this file")
        if not isinstance(config, DecryptionConfig):
            raise TypeError(f"{name}: decryption must return a DecryptionConfig, not {type(config).__name__}")
        view = self._files.view(
            path,
            decryption=config,
            columns=None if self._names is None else functools.partial(_is_named, self._names),
            missing_keys=self._missing_keys,
            threads=self._threads,
        )
        if self._prefixes.get(path, view.aad_prefix) != view.aad_prefix:
            view.close()
            raise AuthenticationError(f"{name}: was exchanged for a file with another AAD prefix")
        self.missing.update(view._missing)
        for leaf, error in view._missing.items():
            if self._schema is not None and _has(self._schema, leaf):
                view.close()
                raise KeyAccessError(
                    f"{name}: the dataset has a column {'.'.join(leaf)}, which would be all nulls for this file, "
                    f"because its key is missing; give columns, or a schema, without it ({error})"
                )
        return view

    def require(self, paths: list[str], wanted: ExpectedFiles) -> None:
        """Refuse a set of files that is not the wanted one; later, a file with another AAD prefix."""
        if wanted.by_prefix:
            with closing(in_parallel(self._prefix, paths, SMALL_FILES_AT_ONCE)) as prefixes:
                self._prefixes = dict(zip(paths, prefixes, strict=True))
        others = []
        for path in paths:
            why = wanted.take(self._files.below(path) or path.rpartition("/")[2], self._prefixes.get(path))
            if why is not None:
                others.append((self._files.name(path), why))
        refuse_other_set(wanted.missing(), others, self._files.where)

    def _prefix(self, path: str) -> bytes | None:
        with self.open(path) as view:
            return view.aad_prefix

    def promise(self, schema: Any) -> None:
        """Require from now on that every file shows its values of these columns."""
        self._schema = schema
        if self._names is None:
            return
        for name in self._names:
            first = name[0] if isinstance(name, tuple) else name
            if not any(
                first == field or (isinstance(name, str) and first.startswith(f"{field}.")) for field in schema.names
            ):
                raise ValueError(f"the dataset has no column {name!r}, or its key is missing")


def _is_named(names: ColumnNames, path: Path) -> bool:
    return names.find(path) is not None


def _has(schema: Any, path: Path | str) -> bool:
    """Whether a schema has a field for a leaf, or for a name with dots; only structs are searched."""
    import pyarrow

    if isinstance(path, str):
        path = (path,) if path in schema.names else tuple(path.split("."))
    fields = {field.name: field for field in schema}
    for name in path:
        field = fields.get(name)
        if field is None:
            return False
        if not pyarrow.types.is_struct(field.type):
            return True
        fields = {child.name: child for child in field.type}
    return True


def _text(path: Any) -> str:
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"paths must be a path, a URL, or a list of these, not {type(path).__name__}")
    return os.fsdecode(path)


def _refuse(options: dict[str, Any], refused: dict[str, str]) -> None:
    for name, reason in refused.items():
        # These values mean "not given" in PyArrow.
        if options.pop(name, None):
            raise TypeError(f"{name} cannot be given: {reason}")


def _listed(columns: Sequence[str]) -> list[str]:
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise TypeError(f"columns must be a list of column names, not {type(columns).__name__}")
    names = list(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"columns must be a list of str, but has a {type(name).__name__}")
    return names


def _filtered(filters: Any) -> set[str]:
    """The columns in a filter in the form of lists; empty for an expression."""
    if not isinstance(filters, (list, tuple)):
        return set()
    found: set[Any] = set()
    for entry in filters:
        terms = [entry] if isinstance(entry, tuple) else entry
        found.update(term[0] for term in terms if isinstance(term, (tuple, list)) and term)
    return found
