"""``ags1 encrypt``, ``ags1 decrypt`` and ``ags1 cat``."""

from __future__ import annotations

import errno
import os
import stat
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress

from ags1.cli.command import Positional, command
from ags1.cli.keys import KEY_HELP, LENGTH_HELP, Keys, aad_prefix, read_metadata, warn_of_same_prefix, write_private
from ags1.cli.output import OutputClosed, copy_out, refuse_terminal, standard_input, standard_output, warn
from ags1.cli.paths import (
    STANDARD,
    Job,
    expand,
    is_url,
    made_directories,
    pair_up,
    place_in_target,
    refuse_reading,
    refuse_twin_targets,
    shown,
    size_of,
    sources_and_target,
)
from ags1.cli.report import Reporter, in_time
from ags1.errors import Ags1Error, AlreadyEncryptedError
from ags1.keys import KeyMetadata
from ags1.layout import MAGIC
from ags1.streams.files import decrypt_file, encrypt_file
from ags1.streams.metadata_files import KEY_METADATA_SUFFIX, SUFFIX
from ags1.streams.opening import open as open_stream
from ags1.support.exit_codes import UsageError, describe, exit_code, worst_code
from ags1.support.key_files import SECRET_EXISTS, local_path
from ags1.support.typing import Any
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.work.units import SharedProgress

_PENDING = ".pending"


_NEEDS = "(--key-metadata PATH | ...)"


@command(
    paths=sources_and_target("file, glob ('*.avro'), directory, or `-` for standard input"),
    key="KEY",
    metadata="key-metadata-out replace-key-metadata",
    block_length="block-length",
    again="again",
    work="jobs WORK",
    needs="(--key-metadata-out PATH | ...)",
    epilog=KEY_HELP,
    fields="source, target, encrypted_length, seconds, error",
)
def encrypt(
    paths: Namespace, key: Namespace, metadata: Namespace, block_length: int, again: bool, work: Namespace
) -> int:
    """A directory stands for all files below it, and TARGET gets the same tree; links in it are left out.
    Every target appears whole or not at all. In a directory, each result has the name of its source and .ags1.

    examples:
      ags1 encrypt sales.avro sales.avro.ags1 --key-metadata-out sales.key-metadata
      ags1 encrypt data/ vault/ --key-metadata-out keys/ --aad-prefix '{path}'
      tar c data | ags1 encrypt - data.tar.ags1 --key-metadata-out tar.key-metadata
    """
    keys = Keys(key)
    fresh = not keys.named
    if fresh and not metadata.key_metadata_out:
        raise UsageError(
            "a key is needed: --key-metadata-out PATH for a fresh key for each file; or --key-file FILE or --key-env "
            "NAME (`ags1 keygen` makes one)"
        )
    jobs = pair_up(paths, work, encrypting=True)
    refuse_twin_targets(paths, jobs)
    if not again:
        refuse_reading(list(paths.sources), "decrypt VAULT TARGET` and encrypt that, or --again to encrypt it `again")
        for job in jobs:
            _refuse_again(job.source)
    if paths.target == STANDARD:
        refuse_terminal("encrypted bytes")
    many = len(jobs) > 1 or jobs[0].target != paths.target
    metadata_paths = {job.target: metadata_path(metadata.key_metadata_out, job, many) for job in jobs}
    given = {} if fresh else {job.target: keys.metadata_for(job.target, job.name) for job in jobs}
    replace = metadata.replace_key_metadata
    if not replace:
        for target, path in metadata_paths.items():
            if path is not None:
                refuse_other_key(path, given.get(target), target, _read_a_byte)
    refuse_existing(jobs, overwrite=paths.overwrite)
    if given and not os.path.isdir(key.key_metadata or ""):
        count = max(Counter(each.aad_prefix for each in given.values()).values())
        if count > 1:
            warn_of_same_prefix(work, count)
    prefixes: dict[str, bytes | None] = {job.target: None for job in jobs}
    if fresh and key.aad_prefix is not None:
        prefixes = {job.target: aad_prefix(key.aad_prefix, job.name) for job in jobs}
    lengths: dict[str, int] = {}

    def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
        started = time.monotonic()
        made = given.get(job.target)
        if made is None:
            made = KeyMetadata.generate()
            prefix = prefixes[job.target]
            if prefix is not None:
                made = KeyMetadata(made.encryption_key, prefix)
        output = MetadataFile(metadata_paths[job.target], made, fresh, replace)
        watched = Watched(progress)
        try:
            made = encrypt_file(
                _input(job.source),
                output_of(paths, job),
                made.encryption_key,
                aad_prefix=made.aad_prefix or b"",
                block_length=block_length,
                threads=work.threads,
                progress=watched,
                durable=paths.durable,
            )
        except BaseException:
            output.fail(job.target, watched, lambda: _read_a_byte(job.target, made))
            raise
        output.commit(made, job.target)
        seconds = time.monotonic() - started
        stored = lengths[job.target] = made.file_length or 0
        line = f"{shown(job.source)} -> {job.target}  {in_time(stored, seconds)}"
        return line, {"encrypted_length": stored, "seconds": round(seconds, 6)}

    with made_directories(paths, jobs):
        code = work_through(work, ("encrypting", "encrypted"), jobs, one, names_of)
    if lengths and not (metadata.key_metadata_out or work.quiet or work.json):
        needed = "the length of each file: --json prints them, --key-metadata-out PATH keeps them"
        if len(jobs) == 1:
            needed = f"--length {lengths[jobs[0].target]}: keep this number, or let --key-metadata-out PATH keep it"
        warn(f"note: `ags1 decrypt` needs {needed}")
    return code


@command(
    paths=sources_and_target("AGS1 file, glob ('*.ags1'), directory, or `-` for standard input"),
    key="KEY",
    length="LENGTH",
    work="jobs WORK",
    needs=_NEEDS,
    epilog=LENGTH_HELP,
    fields="source, target, plaintext_length, seconds, length_trusted, error",
)
def decrypt(paths: Namespace, key: Namespace, length: Namespace, work: Namespace) -> int:
    """A directory stands for the .ags1 files below it, and TARGET gets the same tree; links in it are left out.
    Every target appears whole or not at all. In a directory, each result has the name of its source without .ags1.

    examples:
      ags1 decrypt sales.avro.ags1 sales.avro --key-metadata sales.key-metadata
      ags1 decrypt vault/ data/ --key-metadata keys/
      ags1 decrypt data.tar.ags1 - --key-metadata tar.key-metadata | tar x
      ags1 decrypt sales.avro.ags1 sales.avro --key-file my.key --length 5148
    """
    keys = Keys(key, length)
    jobs = pair_up(paths, work, encrypting=False)
    refuse_twin_targets(paths, jobs)
    if len(jobs) > 1 and length.length is not None:
        raise UsageError("--length is the length of one file: use --key-metadata for many")
    refuse_existing(jobs, overwrite=paths.overwrite)
    metadata = {job.target: keys.metadata_for(job.source, job.name) for job in jobs}

    def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
        started = time.monotonic()
        size = decrypt_file(
            _input(job.source),
            output_of(paths, job),
            key_metadata=metadata[job.target],
            threads=work.threads,
            progress=progress,
            durable=paths.durable,
        )
        seconds = time.monotonic() - started
        line = f"{shown(job.source)} -> {job.target}  {in_time(size, seconds)}"
        trusted = metadata[job.target].file_length is not None
        return line, {"plaintext_length": size, "seconds": round(seconds, 6), "length_trusted": trusted}

    with made_directories(paths, jobs):
        code = work_through(work, ("decrypting", "decrypted"), jobs, one, names_of)
    if not code:
        keys.note_any_length(work)
    return code


@command(
    files=Positional("FILE...", "AGS1 file, glob, directory, or `-` for standard input"),
    key="KEY",
    length="LENGTH",
    offset="offset",
    size="bytes",
    threads="threads",
    said="quiet progress",
    needs=_NEEDS,
    epilog=LENGTH_HELP,
)
def cat(
    files: list[str],
    key: Namespace,
    length: Namespace,
    offset: int,
    size: int | None,
    threads: int | None,
    said: Namespace,
) -> int:
    """Nothing is written before it is authenticated, but what was written before a failure stays written.

    examples:
      ags1 cat sales.avro.ags1 --key-metadata sales.key-metadata | head
      ags1 cat log.ags1 --key-metadata log.key-metadata --offset 1G --bytes 64K
    """
    keys = Keys(key, length)
    refuse_reading(files, "cat VAULT PATH")
    found = expand(files, said, only_suffix=SUFFIX)
    if len(found) > 1 and (offset or size is not None or length.length is not None):
        raise UsageError("--offset, --bytes and --length are for one file, but there are many")
    metadata = [keys.metadata_for(path, name) for path, name, _ in found]
    from ags1.storage import refuse_writing_into

    output = standard_output()
    for path, *_ in found:
        refuse_writing_into(_input(path), output)
    with Reporter(said, ("decrypting", "decrypted"), to_stdout=False) as reporter:
        for (path, *_), of_file in zip(found, metadata, strict=True):
            with open_stream(_input(path), key_metadata=of_file, threads=threads) as reader:
                if offset:
                    if reader.seekable():
                        reader.seek(offset)
                    else:
                        _skip(reader, offset)
                copy_out(reader, output, size, reporter.progress_of(path))
        output.flush()
    keys.note_any_length(said)
    return 0


def _refuse_again(path: str) -> None:
    """Refuse a source that is an AGS1 stream, or the version of a dataset. AlreadyEncryptedError: it is."""
    if path == STANDARD:
        return
    above, control, name = path.replace(os.sep, "/").rpartition("/_ags1/")
    is_version = bool(control) and name.startswith("v-") and name.endswith(".json")
    if is_version or _beginning(path) == MAGIC:
        what = f"{above} is a dataset" if is_version else f"{path} is an AGS1 file"
        raise AlreadyEncryptedError(
            f"{what}, so it is encrypted already: leave it out, or encrypt it again with --again"
        )


def _beginning(path: str) -> bytes:
    try:
        if is_url(path):
            from ags1.storage import open_source

            source: Any = open_source(path)
            try:
                return bytes(memoryview(source.read(0, min(len(MAGIC), source.size))))
            finally:
                source.close()
        if not stat.S_ISREG(os.stat(path).st_mode):
            # Who opens a pipe, and closes it, ends its writer.
            return b""
        with open(path, "rb") as file:
            return file.read(len(MAGIC))
    except (OSError, Ags1Error):
        # Encryption says what is wrong.
        return b""


def names_of(job: Job) -> dict[str, Any]:
    return {"source": job.source, "target": job.target}


def recorded(error: Exception, record: dict[str, Any]) -> Exception:
    """The error, with what a machine is told beside it."""
    error.record = record  # type: ignore[attr-defined]
    return error


def work_through(
    work: Namespace,
    words: tuple[str, str],
    jobs: list[Job],
    one: Callable[[Job, Callable[..., None]], tuple[str, dict[str, Any]]],
    names: Callable[[Job], dict[str, Any]],
    job_count: int | None = None,
    *,
    name_all: bool = False,
) -> int:
    """Call `one` for every job, some at a time; go on after a failure.

    `one` gets a job and its progress callback, and returns a line for a person and a record for a machine; a failed one
    may have a record, too (:func:`recorded`). `names` is what a record says of a job in any case, `job_count` how many
    there are at a time, by default what the options say. With `name_all`, a person is told of every file that fails.

    Return 0, or the exit code that :func:`worst_code` chooses of those of the failures.
    """
    sizes = [size_of(job) for job in jobs]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    to_stdout = all(job.target != STANDARD for job in jobs)
    reporter = Reporter(work, words, total, len(jobs), to_stdout=to_stdout, name_all=name_all)
    shared: SharedProgress | None = None
    codes: list[int] = []
    fatal: list[str] = []
    untried = 0

    def attempt(job: Job, threads: int | None = None, advance: Callable[..., None] | None = None) -> None:
        nonlocal untried
        if fatal:
            # A password that is wrong for one file is wrong for all, and each try may cost a second.
            untried += 1
            if work.json:
                text = f"{shown(job.source)}: not tried, because of another file: {fatal[0]}"
                reporter.finished(text, {**names(job), "error": text})
            return
        report_progress = reporter.progress_of(job.source)

        def progress(done: int, size: int | None) -> None:
            if advance is not None:
                advance(done, size)
            report_progress(done, size)

        try:
            line, record = one(job, progress)
        except OutputClosed:
            raise
        except Exception as error:
            from ags1.work.units import is_fatal

            if shared is not None:
                # Of what was stopped, nothing is said.
                shared.check()
            text = describe(error)
            if is_fatal(error):
                if fatal and not work.json:
                    # Under way at the same time as the one that said it.
                    untried += 1
                    return
                fatal.append(text)
            if isinstance(error, OSError) and error.filename is None:
                # Which of the two it was, the system did not say.
                text = f"{shown(job.source)} -> {shown(job.target, 'standard output')}: {text}"
            elif not any(name and name in text for name in (shown(job.source), shown(job.target, "standard output"))):
                text = f"{shown(job.source)}: {text}"
            codes.append(exit_code(error))
            reporter.finished(text, {**names(job), **getattr(error, "record", {}), "error": text})
        else:
            reporter.finished(line, {**names(job), **record, "error": None})

    try:
        if len(jobs) == 1:
            # The engine costs an import.
            attempt(jobs[0])
            return worst_code(codes)
        from ags1.work import units

        shared = units.SharedProgress(None, None)
        threads = units.Threads(min(len(jobs), at_once(work.jobs, jobs) if job_count is None else job_count))
        attempts = units.OneByOne(attempt, lambda job: job.size or 0)
        with closing(units.run_on_threads(attempts, jobs, threads, shared)) as found:
            for _ in found:
                pass
    finally:
        reporter.close()
    if untried and not work.json:
        warn(f"ags1: {counted(untried, 'file')} not tried: each would fail for the same reason")
    return worst_code(codes)


def at_once(wanted: int | None, jobs: list[Job]) -> int:
    """Files to work on at once: what is wanted, else one here, and many where each waits for requests."""
    if wanted is not None:
        return wanted
    ends = [path for job in jobs[:1] for path in (job.source, job.target) if is_url(path)]
    if not ends:
        return 1
    from ags1.storage import SMALL, Location, files_at_once

    # A pipe may have any length.
    sizes = [SMALL + 1 if job.size is None else job.size for job in jobs]
    return files_at_once(Location(ends[0]), sizes, 1, written=True)


def _input(path: str) -> Any:
    return path if path != STANDARD else standard_input()


def output_of(paths: Namespace, job: Job) -> Any:
    """What a job writes to. The directories inside the TARGET are made; that of a TARGET by itself has to be there."""
    if job.target == STANDARD:
        return standard_output()
    if job.target == paths.target:
        return job.target
    from ags1.storage import make_parent

    place = place_in_target(paths, job)
    make_parent(place)
    return place


def refuse_existing(jobs: list[Job], *, overwrite: bool) -> None:
    """Refuse targets that are files already, before the first is written, unless --overwrite is given."""
    if overwrite:
        return
    if any(is_url(job.target) for job in jobs):
        from ags1.storage import REQUESTS_AT_ONCE, in_order

        looked = in_order(_would_replace, jobs, at_once=REQUESTS_AT_ONCE)
    else:
        looked = (_would_replace(job) for job in jobs)
    with closing(looked):
        there = [job.target for job, is_file in zip(jobs, looked, strict=True) if is_file]
    if there:
        others = f" ({len(there):,} of {len(jobs):,} targets do)" if len(jobs) > 1 else ""
        text = f"it exists{others}, and nothing was replaced: --overwrite replaces what exists"
        raise FileExistsError(errno.EEXIST, text, there[0])


def _would_replace(job: Job) -> bool:
    """Whether there is a file that would be lost; a pipe or a device is written to."""
    source, target = job.source, job.target
    is_local = source != STANDARD and not is_url(source)
    if is_local and not os.path.exists(source):
        # The work says what is wrong, also of a file that is both.
        return False
    if not is_url(target):
        is_file = target != STANDARD and os.path.isfile(target)
        return is_file and not (is_local and os.path.samefile(source, target))
    from ags1.storage import Location, status

    try:
        status(Location(target))
        return True
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False
    except PermissionError as error:
        text = f"{error.strerror or error}: so nobody knows whether it exists: --overwrite does not ask"
        raise PermissionError(error.errno or errno.EACCES, text, target) from None


def metadata_path(where: str | None, job: Job, many: bool) -> str | None:
    """Where the key metadata of a job goes, as --key-metadata-out says; None if nobody says where."""
    if where is None:
        return None
    path = local_path(where)
    if many and os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"--key-metadata-out {path} is a file, but many sources need a directory")
    if many or os.path.isdir(path) or path.endswith("/"):
        if not job.name:
            raise UsageError(f"standard input and output have no name to have in {path}: give a file")
        path = os.path.join(path, job.name + KEY_METADATA_SUFFIX)
    for other in (job.source, job.target):
        if other != STANDARD and os.path.abspath(path) == os.path.abspath(local_path(other)):
            raise UsageError(f"--key-metadata-out {path} is also the {'SOURCE' if other == job.source else 'TARGET'}")
    return path


class MetadataFile:
    """Key metadata on its way to a file.

        fresh key:   PATH.pending  --target is published-->  PATH   --> PATH.pending is removed

    A fresh key, which nobody else has, is on the disk before what it encrypts, or it could be lost; and what was under
    PATH stays until the new target is there, or a failure would take the key of the old one. The fresh keys of killed
    runs, and of runs at work, stay beside PATH; with `replace`, a success removes them. Without PATH, it does nothing.
    """

    def __init__(self, path: str | None, metadata: KeyMetadata, fresh: bool, replace: bool) -> None:
        self._path = path
        self._pending: str | None = None
        self._replaced: list[str] = []
        # A given key is at PATH already, or nothing is.
        self._replace = replace or not fresh
        if path is None:
            return
        directory = os.path.dirname(path)
        if directory:
            os.makedirs(directory, exist_ok=True)
        if fresh:
            self._replaced = _left_pending(path) if replace else []
            pending = path + _PENDING
            try:
                write_private(pending, metadata.encode(), replace=False)
            except FileExistsError:
                # It may be the only key of what is there, as long as this does not replace that.
                pending += f"-{os.urandom(4).hex()}"
                write_private(pending, metadata.encode(), replace=False)
            self._pending = pending

    def commit(self, metadata: KeyMetadata, target: str) -> None:
        """Publish it, now with the length."""
        if self._path is None:
            return
        try:
            write_private(self._path, metadata.encode(), replace=self._replace)
        except OSError as error:
            if self._pending is not None:
                text = (
                    f"{os.strerror(error.errno or 0)}; {target} is encrypted, its key is in {self._pending}, and its "
                )
                text += f"length is {metadata.file_length}"
                raise type(error)(error.errno, text, self._path) from None
            raise
        self.abort()
        for each in self._replaced:
            with suppress(FileNotFoundError):
                os.unlink(each)

    def fail(self, target: str, watched: Watched, read: Callable[[], object]) -> None:
        """Remove a fresh key, unless the target has it: an interrupt or a lost reply may have come behind that.

        `read` reads the target with the key; an Ags1Error says that it is under another one.
        """
        if self._pending is None or not watched.is_read or not _may_be_read(target, read):
            self.abort()
        else:
            warn(f"ags1: warning: {shown(target)} may be encrypted already; then its key is in {self._pending}")

    def abort(self) -> None:
        if self._pending is not None:
            os.unlink(self._pending)
            self._pending = None


class Watched:
    """Progress of a job that also knows whether all of its source was read."""

    def __init__(self, progress: Callable[..., None]) -> None:
        self._progress, self.is_read = progress, False

    def __call__(self, done: int, size: int | None) -> None:
        self.is_read = size is None or done == size
        self._progress(done, size)


def _read_a_byte(target: str, metadata: KeyMetadata) -> None:
    with open_stream(target, key_metadata=metadata) as reader:
        reader.read(1)


def _may_be_read(target: str, read: Callable[[], object]) -> bool:
    """Whether a target can be read, also if nobody can say it."""
    if target == STANDARD or not (is_url(target) or os.path.isfile(target)):
        return False
    try:
        read()
        return True
    except (FileNotFoundError, Ags1Error):
        return False
    except OSError:
        return True


def refuse_other_key(
    path: str, metadata: KeyMetadata | None, target: str, read: Callable[[str, KeyMetadata], object]
) -> None:
    """Refuse to replace the key metadata at `path` unless it has the key of `metadata`, too.

    If a killed run has written the target, and no more, its fresh key is put to `path` first: `read` reads with it.
    """
    if metadata is None and not os.path.lexists(path):
        _finish_killed(path, target, read)
    if os.path.lexists(path):
        kept = read_metadata(path) if metadata is not None else None
        if metadata is not None and kept is not None and kept.encryption_key == metadata.encryption_key:
            return
        raise FileExistsError(errno.EEXIST, f"{SECRET_EXISTS} (--replace-key-metadata replaces it)", path)


def _left_pending(path: str) -> list[str]:
    """Fresh keys that killed runs have left beside `path`; further ones than PATH.pending were made beside that."""
    first = path + _PENDING
    if not os.path.lexists(first):
        return []
    import glob

    return sorted([*glob.glob(f"{glob.escape(first)}-{'[0-9a-f]' * 8}"), first], reverse=True)


def _finish_killed(path: str, target: str, read: Callable[[str, KeyMetadata], object]) -> None:
    """Put the fresh key of a killed run to `path` if it opens the target; leave the others, and say so.

    Such a key may be of another target, or of one that cannot be read now, so a run goes on beside it and keeps it.
    """
    for pending in _left_pending(path):
        kept = read_metadata(pending)
        left = f"ags1: note: {pending}: a run that was cut short has left it, and it"
        try:
            if kept is None or target == STANDARD:
                raise FileNotFoundError
            read(target, kept)
        except (OSError, Ags1Error):
            shut = shown(target, "standard output")
            warn(f"{left} does not open {shut}: it stays, as it may be the key of another file")
            continue
        write_private(path, kept.encode(), replace=False)
        os.unlink(pending)
        warn(f"{left} is the key of {target}: it is {path} now")
        return


def _skip(reader: Any, count: int) -> None:
    while count > 0:
        data = reader.read(min(count, 1 << 20))
        if not data:
            return
        count -= len(data)
