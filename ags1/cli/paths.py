"""Which files a command line means, and where each result goes."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from argparse import Namespace
from collections import namedtuple

from ags1.cli.command import Positional
from ags1.cli.output import standard_input, warn
from ags1.streams.metadata_files import SUFFIX
from ags1.support.exit_codes import UsageError
from ags1.support.typing import Any
from ags1.support.words import LINK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

STANDARD = "-"
_TEMPORARY = ".ags1-tmp"
_CONTROL = "_ags1"
_GLOB = frozenset("*?[")

# `name`: of the encrypted file, below the directory that was given; "" between standard input and output.
# `size`: bytes of the source, where a listing told them.
Job = namedtuple("Job", ("source", "target", "name", "size"), defaults=(None,))  # noqa: PYI024  typing is slow to import
Found = namedtuple("Found", ("path", "name", "size"), defaults=(None,))  # noqa: PYI024


def is_url(path: str) -> bool:
    """Whether the path has a scheme."""
    return "://" in path


def base_name(path: str) -> str:
    """Last part of a path or URL."""
    return path.rstrip("/").rpartition("/")[2] if is_url(path) else os.path.basename(path)


def shown(path: str, standard: str = "standard input") -> str:
    """The path as a person would call it."""
    return standard if path == STANDARD else path


def dataset_above(path: str) -> str | None:
    """The dataset that a path is or lies in; None if there is none, or if it is a URL that is none itself."""
    if path == STANDARD:
        return None
    if is_url(path):
        from ags1.storage import Location, list_names

        place = Location(path.rstrip("/"))
        try:
            names = list_names(place.join(_CONTROL)) if place.is_object and place.path else []
        except OSError:
            # What is asked for next says what is wrong.
            names = []
        return path if any(map(_is_version, names)) else None
    above = os.path.realpath(path)
    while True:
        try:
            if any(map(_is_version, os.listdir(os.path.join(above, _CONTROL)))):
                return os.path.relpath(above) if not os.path.isabs(path) else above
        except OSError:
            # There is no such directory, or it is nobody's to read.
            pass
        if above == os.path.dirname(above):
            return None
        above = os.path.dirname(above)


def _is_version(name: str) -> bool:
    return name.startswith("v-") and name.endswith(".json") and name[2:-5].isdigit()


def refuse_reading(paths: list[str], meant: str) -> None:
    """Refuse paths of which one is a dataset; `meant` is the command for it. UsageError: one is."""
    for path in paths:
        # The key metadata of one object opens that alone.
        vault = dataset_above(path) if is_url(path) or os.path.isdir(path) else None
        if vault is not None:
            command = f"ags1 dataset {meant}".replace("VAULT", shlex.quote(vault))
            raise UsageError(f"{_part_of(path, vault)}, whose keys are not those of single files: use `{command}`")


def refuse_writing(target: str) -> None:
    """Refuse to write into a dataset, where a file that no version names is foreign. UsageError: it is one."""
    vault = dataset_above(target)
    if vault is not None:
        command = f"ags1 dataset add {shlex.quote(vault)} SOURCE"
        raise UsageError(f"{_part_of(target, vault)}: use `{command}` to add files to it, or another TARGET")


def _part_of(path: str, vault: str) -> str:
    return f"{path} is a dataset" if path.rstrip("/") == vault.rstrip("/") else f"{path} lies in {vault}, a dataset"


def expand(
    patterns: list[str], said: Namespace, *, only_suffix: str | None = None, outside: str | None = None
) -> list[Found]:
    """Files that names, globs and directories stand for, in order, each once.

    Their names are the paths below the directory that was given, else the base names. A path that exists is itself,
    whatever characters it has. A glob that matches nothing, or a directory without files, is a UsageError, so that a
    misspelt pattern does not pass for success. Directories stand for the files below them (`only_suffix` narrows those,
    and what lies below the directory `outside` is left out). Links in them are left out, and objects whose names cannot
    be addressed, and ``said.left_out`` is set; a directory that cannot be read is an error.

    URLs are no different: one that ends in ``/`` or names no object is a directory, and ``*``, ``?``, ``[...]`` and
    ``**`` match names below it.
    """
    found: dict[str, Found] = {}
    for pattern in patterns:
        if pattern == STANDARD:
            found.setdefault(pattern, Found(pattern, ""))
        elif is_url(pattern):
            for each in _expand_url(pattern, said, only_suffix, outside):
                found.setdefault(each.path, each)
        elif os.path.isdir(pattern):
            for each in _below(pattern, said, only_suffix, outside):
                found.setdefault(each.path, each)
        elif _is_glob(pattern):
            import glob

            matches = sorted(path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))
            if not matches:
                raise UsageError(f"no file matches {pattern}")
            for path in matches:
                found.setdefault(path, Found(path, os.path.basename(path)))
        else:
            found.setdefault(pattern, Found(pattern, os.path.basename(pattern)))
    return list(found.values())


def places(patterns: list[str]) -> list[str]:
    """Directories, files and URLs that names and globs stand for, each once; as :func:`expand`, and not below them."""
    import glob

    from ags1.storage import Location, match

    found: dict[str, None] = {}
    for pattern in patterns:
        matches = [pattern]
        if _is_glob(pattern):
            matches = (
                [each.path for each in match(Location(pattern))] if is_url(pattern) else sorted(glob.glob(pattern))
            )
        if not matches:
            raise UsageError(f"no file matches {pattern}")
        found |= dict.fromkeys(matches)
    return list(found)


def _expand_url(pattern: str, said: Namespace, only_suffix: str | None, outside: str | None) -> list[Found]:
    from ags1.storage import Location, is_directory, match, status

    location = Location(pattern)
    if _GLOB.isdisjoint(pattern) and not pattern.endswith("/") and location.name:
        try:
            return [Found(pattern, base_name(pattern), status(location).size or None)]
        except FileNotFoundError:
            if not is_directory(location):
                raise
        except IsADirectoryError:
            pass
    elif not _GLOB.isdisjoint(pattern):
        entries = match(location, _leaving_out(location, said, None))
        if not entries:
            raise UsageError(f"no file matches {pattern}")
        return [Found(entry.path, entry.location.name, entry.size) for entry in entries]
    return _below(pattern, said, only_suffix, outside)


def _below(pattern: str, said: Namespace, only_suffix: str | None, outside: str | None) -> list[Found]:
    """The files below a directory or URL; UsageError if there are none."""
    from ags1.storage import Location, list_files

    location = Location(pattern)
    on_error = _leaving_out(location, said, only_suffix)

    def on_link(name: str) -> None:
        path = os.path.join(pattern, name)
        if only_suffix is None or name.endswith(only_suffix) or os.path.isdir(path):
            _leave_out(path, f"it {LINK}", said)

    elsewhere = None if outside is None or outside == pattern else Location(outside)
    entries = list_files(location, outside=elsewhere, on_error=on_error, on_link=on_link)
    found = [
        Found(os.path.join(pattern, entry.name) if location.is_local else entry.path, entry.name, entry.size)
        for entry in entries
        if entry.name.endswith(only_suffix or "") and not (location.is_local and entry.name.endswith(_TEMPORARY))
    ]
    if not found:
        raise UsageError(f"there are no {f'{only_suffix} files' if only_suffix else 'files'} below {pattern}")
    return found


def _leaving_out(location: Any, said: Namespace, only_suffix: str | None) -> Callable[[OSError], None] | None:
    """What to do with an error of a listing: say what is left out, or raise it."""
    from ags1.storage import pass_unnamed

    def of_store(error: OSError) -> None:
        pass_unnamed(error)
        _leave_out(error.filename, str(error.strerror), said)

    def of_directory(error: OSError) -> None:
        if error.errno == errno.EINVAL:
            # A pipe, a socket or a device. Nothing is hidden by it.
            if str(error.filename).endswith(only_suffix or ""):
                warn(f"ags1: warning: {error.filename} is left out: it is a pipe, a socket or a device")
        elif error.errno != errno.ENOTDIR:
            raise error

    return of_store if location.is_object else of_directory if location.is_local else None


def _leave_out(path: str, why: str, said: Namespace) -> None:
    warn(f"ags1: warning: {path} is left out: {why}")
    said.left_out = True


def no_file_left(source: str, include: list[str] | None, exclude: list[str] | None) -> str | None:
    """The message if the patterns leave no file; None without patterns, because nothing is misspelt then."""
    patterns = [f"--include {shlex.quote(each)}" for each in include or ()]
    patterns += [f"--exclude {shlex.quote(each)}" for each in exclude or ()]
    return f"{source}: no file is left by {' '.join(patterns)}: correct the patterns" if patterns else None


def _is_glob(pattern: str) -> bool:
    if is_url(pattern):
        return not _GLOB.isdisjoint(pattern)
    return not _GLOB.isdisjoint(pattern) and not os.path.lexists(pattern)


def sources_and_target(what: str) -> tuple[Positional | str, ...]:
    """Any number of sources, where they go, and the options of both."""
    target = (
        "file, or `-` for standard output; a directory if there are many sources, a glob or a directory among them, "
        "or if it exists or ends with /"
    )
    sources = Positional("SOURCE...", what, dest="sources", nargs="*", default=[])
    return sources, Positional("TARGET", target, dest="target", nargs="?"), "FILES"


def pair_up(paths: Namespace, said: Namespace, *, encrypting: bool, suffix: str = SUFFIX) -> list[Job]:
    """Pair every source with its target; `suffix` is what the names of encrypted files have more, if anything.

    UsageError: many sources for one file, two sources for one target, or nothing to tell a target's name from.
    """
    patterns = list(paths.sources)
    if paths.files_from:
        if paths.files_from == STANDARD and STANDARD in patterns:
            raise UsageError("standard input cannot be both a SOURCE and the list of --files-from")
        patterns += _read_list(paths.files_from)
        if not patterns:
            raise UsageError(f"there are no files in the list {shown(paths.files_from)}")
    target = paths.target
    if target == STANDARD and said.json:
        raise UsageError("--json and the result cannot both go to standard output: give a file as the TARGET")
    refuse_writing(target)
    if not encrypting:
        refuse_reading(patterns, f"decrypt VAULT {target}")
    sources = expand(
        patterns,
        said,
        only_suffix=None if encrypting else suffix or None,
        outside=target if encrypting or not suffix else None,
    )
    many = len(sources) > 1 or paths.files_from or any(os.path.isdir(path) or _is_glob(path) for path in patterns)
    many = many or any(is_url(path) and sources[0].path != path for path in patterns)
    if not (many or _is_directory(target)):
        path, name, size = sources[0]
        return [Job(path, target, _encrypted_name(name, target, encrypting, suffix), size)]
    if target == STANDARD:
        hint = "" if encrypting or not suffix else ", or use `ags1 cat`"
        raise UsageError(f"{len(sources)} sources cannot go to standard output: give a directory as TARGET{hint}")
    if is_url(target) and not target.endswith("/"):
        raise UsageError(f"{len(sources)} sources cannot go into one object: end the TARGET {target} with /")
    if os.path.lexists(target) and not os.path.isdir(target):
        raise UsageError(
            f"the TARGET (the last name) is the file {target}, but many sources need a directory: give one that exists "
            "or is new"
        )
    jobs: dict[str, Job] = {}
    for path, name, size in sources:
        if path == STANDARD:
            raise UsageError("standard input has no name to have in a directory: give a file as the TARGET")
        result = name + suffix if encrypting else name.removesuffix(suffix)
        joined = target + result if is_url(target) else os.path.join(target, result)
        if joined in jobs:
            raise UsageError(f"{jobs[joined].source} and {path} would both become {joined}: use two directories")
        jobs[joined] = Job(path, joined, result if encrypting else name, size)
    return list(jobs.values())


def refuse_twin_targets(paths: Namespace, jobs: list[Job]) -> None:
    """Refuse jobs of which one would write a file where another needs a directory, before the first is written."""
    if len(jobs) > 1:
        from ags1.storage import Location, refuse_twins

        target = Location(paths.target)
        refuse_twins(sorted(job.target[len(paths.target) :].lstrip("/") for job in jobs), target)


def place_in_target(paths: Namespace, job: Job) -> Any:
    """Where the file of one of many jobs is written: below the TARGET, through no link."""
    from ags1.storage import Location

    return Location(paths.target).as_root().join(job.target[len(paths.target) :].lstrip("/"))


def made_directories(paths: Namespace, jobs: list[Job]) -> contextlib.AbstractContextManager[None]:
    """Make the directories of a TARGET of many jobs, with the modes of those of the sources; finish them at the end."""
    if not jobs or jobs[0].target == paths.target:
        return contextlib.nullcontext()
    from ags1.storage import Location, directories_like

    files = ((job.target[len(paths.target) :].lstrip("/"), Location(job.source)) for job in jobs)
    one = Location(paths.sources[0]) if len(paths.sources) == 1 and not paths.files_from else None
    return directories_like(one, Location(paths.target).as_root(), files)


def _encrypted_name(name: str, target: str, encrypting: bool, suffix: str) -> str:
    """Name of the encrypted file of a pair, from the other one where it is a standard stream."""
    if encrypting:
        return base_name(target) if target != STANDARD else name and name + suffix
    return name or (base_name(target) + suffix if target != STANDARD else "")


def _is_directory(target: str) -> bool:
    if target == STANDARD:
        return False
    return target.endswith("/") or (not is_url(target) and (os.path.isdir(target) or target.endswith(os.sep)))


def _read_list(path: str) -> list[str]:
    if path == STANDARD:
        data = standard_input().read()
    else:
        with open(path, "rb") as file:
            data = file.read()
    if b"\0" in data:
        return [os.fsdecode(name) for name in data.split(b"\0") if name]
    lines = (line.removesuffix(b"\r") for line in data.split(b"\n"))
    return [os.fsdecode(line) for line in lines if line.strip() and not line.startswith(b"#")]


def size_of(job: Job) -> int | None:
    """Bytes of a job's source, if they are known."""
    path = job.source
    if job.size is not None or path == STANDARD or is_url(path):
        return job.size  # type: ignore[no-any-return]
    try:
        found = os.stat(path)
    except OSError:
        # It counts for nothing: opening it says what is wrong.
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else None
