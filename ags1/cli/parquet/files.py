"""``ags1 parquet`` encrypt, decrypt, rekey and rotate."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace

from ags1.cli import say_json, warn, warn_some
from ags1.cli.keys import aad_prefix, read_metadata, warn_of_same_prefix
from ags1.cli.parquet.keys import Clients, KeyReferences, ReadingOptions, WritingOptions
from ags1.cli.paths import (
    STANDARD,
    Job,
    base_name,
    expand,
    is_url,
    made_directories,
    pair_up,
    place_in_target,
    refuse_reading,
    refuse_twin_targets,
    shown,
    size_of,
)
from ags1.cli.report import in_time
from ags1.cli.standard import refuse_terminal
from ags1.cli.transfer import (
    Watched,
    _at_once,
    _metadata_path,
    _MetadataFile,
    _names,
    _refuse_other_key,
    output_of,
    recorded,
    refuse_existing,
    work_through,
)
from ags1.dataset.selection import Filter
from ags1.errors import Ags1Error, FormatError
from ags1.keys import KeyMetadata
from ags1.parquet.rewrite.conversions import PlaintextColumnsError
from ags1.parquet.rewrite.operations import (
    COPY,
    OTHER,
    PARQUET,
    Decrypting,
    Encrypting,
    FileOperation,
    Lacking,
    Rekeying,
    classify,
    refuse_missing_columns,
    refuse_others,
)
from ags1.parquet.rewrite.tree_files import copy, transfer
from ags1.storage import Entry, Location, status
from ags1.support.command_line import no_file_left
from ags1.support.exit_codes import EXIT_EXISTS, EXIT_USAGE, UsageError
from ags1.support.parallel import in_parallel
from ags1.support.typing import Any

_DONE, _COPIED, _LEFT_OUT, _BEFORE = "done", "copied", "left out", "finished before"
_SHOWN = 20
_SHARED = (
    "these keys encrypt {count} files, which all count against the 2^32 invocations that AES GCM allows a key, in this "
    "run and in all others"
)


def encrypt(options: argparse.Namespace) -> int:
    with Clients() as clients:
        writing = WritingOptions(options, KeyReferences(), clients)
        jobs, kinds = _jobs(options, encrypting=True)
        _check_shared(options, writing, kinds)
        work = _Transfer(options, ("encrypting", "encrypted"), jobs, kinds)
        return work.run(_with_metadata(options, writing, work, None))


def decrypt(options: argparse.Namespace) -> int:
    with Clients() as clients:
        reading = ReadingOptions(options, KeyReferences(), clients)
        reading.require()
        jobs, kinds = _jobs(options, encrypting=False)
        work = _Transfer(options, ("decrypting", "decrypted"), jobs, kinds)
        return work.run(
            lambda job: Decrypting(reading.config(job.source, job.name), drop_bloom_filters=options.drop_bloom_filters)
        )


def rekey(options: argparse.Namespace) -> int:
    with Clients() as clients:
        references = KeyReferences()
        writing = WritingOptions(options, references, clients)
        reading = ReadingOptions(options, references, clients, old=True)
        reading.require("--old-footer-key file:PATH or env:NAME, --kms URL, --old-key-metadata PATH")
        jobs, kinds = _jobs(options, encrypting=True)
        _check_shared(options, writing, kinds)
        work = _Transfer(options, ("re-keying", "re-keyed"), jobs, kinds)
        return work.run(_with_metadata(options, writing, work, reading))


# -- files ---------------------------------------------------------------------------------------------------------


def _jobs(options: argparse.Namespace, *, encrypting: bool) -> tuple[list[Job], dict[str, tuple[str, str]]]:
    """What goes where, and what each source is (by its path)."""
    if STANDARD in options.sources:
        raise UsageError("a Parquet file is read from its end, so standard input cannot be one: give a file")
    jobs = pair_up(options, encrypting=encrypting, suffix="")
    if options.target == STANDARD:
        refuse_terminal("a Parquet file")
    chosen = Filter(options.include, options.exclude)
    jobs = [job for job in jobs if chosen.accepts(job.name)]
    if not jobs:
        raise UsageError(str(no_file_left(", ".join(options.sources), options.include, options.exclude)))
    kinds = _kinds([job.source for job in jobs], set(options.sources))
    if options.others == "error":
        others = [job.source for job in jobs if kinds[job.source][0] == OTHER]
        way_out = "--others copy copies them unencrypted, --others skip leaves them out, --include '*.parquet' selects"
        refuse_others(others, way_out)
    elif options.others == "copy":
        kinds.update((path, (COPY, reason)) for path, (kind, reason) in kinds.items() if kind == OTHER)
    return jobs, kinds


def _kinds(paths: list[str], named: set[str]) -> dict[str, tuple[str, str]]:
    """What each file is; those that were named themselves are Parquet files, whatever they look like."""
    known = set(paths)
    return {path: (PARQUET, "") if path in named or is_url(path) else classify(path, path, known) for path in paths}


def parquet_files(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Path and name of the Parquet files that names, globs and directories stand for; UsageError if there are none."""
    patterns = options.files
    if STANDARD in patterns:
        raise UsageError("a Parquet file is read from its end, so standard input cannot be one: give a file")
    refuse_reading(patterns, "ls VAULT")
    found = expand(patterns, options)
    kinds = _kinds([path for path, *_ in found], set(patterns))
    chosen = [(path, name) for path, name, _ in found if kinds[path][0] == PARQUET]
    if not chosen:
        raise UsageError(f"there are no Parquet files in {', '.join(patterns)}")
    return chosen


def _check_shared(options: argparse.Namespace, writing: WritingOptions, kinds: dict[str, tuple[str, str]]) -> None:
    count = sum(kind == PARQUET for kind, _ in kinds.values())
    if count < 2:
        return
    if not writing.fresh:
        said = _SHARED.format(count=f"{count:,}")
        if not options.shared_keys:
            raise UsageError(
                f"{said}: use --kms URL or --key-metadata-out PATH, which make fresh keys for each file, or say "
                "--shared-keys"
            )
        if not options.quiet:
            warn(f"ags1: warning: {said}")
    if writing.same_prefix:
        warn_of_same_prefix(options, count)


class _Transfer:
    """The work on many files, each to its target."""

    def __init__(
        self,
        options: argparse.Namespace,
        words: tuple[str, str],
        jobs: list[Job],
        kinds: dict[str, tuple[str, str]],
    ) -> None:
        self.options = options
        self.jobs = [job for job in jobs if kinds[job.source][0] in (PARQUET, COPY)]
        self.kinds = kinds
        self._left_out = [job for job in jobs if kinds[job.source][0] not in (PARQUET, COPY)]
        past = [words[1]]
        if options.resume:
            past.append("found finished")
        self._words = (words[0], " or ".join(past))

    def run(self, operation_of: Callable[[Job], FileOperation]) -> int:
        def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
            return self._one(job, operation_of, progress)

        say_left_out(self.options, [(_names(job), job.source, self.kinds[job.source][1]) for job in self._left_out])
        # Markers such as _SUCCESS say that everything is there: they come last, and not at all if it is not.
        copies = [job for job in self.jobs if self.kinds[job.source][0] == COPY]
        others = [job for job in self.jobs if self.kinds[job.source][0] != COPY]
        refuse_twin_targets(self.options, self.jobs)
        if not self.options.resume:
            refuse_existing(self.options, self.jobs)
        self._check_columns(others, operation_of)
        with made_directories(self.options, self.jobs):
            code = work_through(self.options, self._words, others, one, _names) if others else 0
            if code and copies:
                say_left_out(self.options, [(_names(job), job.source, "a file before it failed") for job in copies])
            elif copies:
                code = work_through(self.options, ("copying", "copied"), copies, one, _names)
        return code

    def _check_columns(self, jobs: list[Job], operation_of: Callable[[Job], FileOperation]) -> None:
        """Refuse files that lack a column, before the first is written; one alone is refused by the work on it."""
        choice = getattr(self.options, "missing_columns", None)
        if choice is None or (choice == "fail" and len(jobs) < 2):
            return

        def look(job: Job) -> Lacking:
            return replace(operation_of(job).lacking(job.source, job.name), name=job.source)

        with closing(in_parallel(look, jobs, _at_once(self.options, jobs))) as looked:
            refuse_missing_columns(looked, choice, "--missing-columns skip encrypts those that a file has")

    def _one(
        self, job: Job, operation_of: Callable[[Job], FileOperation], progress: Callable[..., None]
    ) -> tuple[str, dict[str, Any]]:
        options = self.options
        started = time.monotonic()
        finished = f"{job.target}: finished before", {"outcome": _BEFORE}
        if self.kinds[job.source][0] == COPY:
            place = place_in_target(options, job)
            if not copy(_entry(job), place, resume=options.resume, progress=progress, durable=options.durable):
                return finished
            return f"{job.source} -> {job.target}  copied as it is", self._record(_COPIED, job, started)
        done = True
        try:
            done = self._work_on(job, operation_of(job), progress)
        except PlaintextColumnsError as error:
            recorded(error, {"plaintext_columns": error.columns})
            raise
        if not done:
            return finished
        record = self._record(_DONE, job, started)
        line = f"{shown(job.source)} -> {job.target}  {in_time(record['bytes'] or 0, time.monotonic() - started)}"
        return line, record

    def _work_on(self, job: Job, operation: FileOperation, progress: Callable[..., None]) -> bool:
        """Do the work, unless an earlier run has finished it: then return False."""
        options = self.options
        how = {"threads": options.threads, "progress": progress, "durable": options.durable}
        if job.target not in (STANDARD, options.target):
            return transfer(_entry(job), place_in_target(options, job), operation, resume=options.resume, **how)
        if options.resume and job.target != STANDARD and operation.is_finished(_entry(job), Location(job.target)):
            return False
        refuse_existing(options, [job])
        operation.run(job.source, output_of(options, job), job.name, **how)
        return True

    def _record(self, outcome: str, job: Job, started: float) -> dict[str, Any]:
        size = size_of(job)
        return {"outcome": outcome, "bytes": size, "seconds": round(time.monotonic() - started, 6)}


def _entry(job: Job) -> Entry:
    found = status(Location(job.source))
    return Entry(job.name, found.location, found.size, found.modified, found.etag)


def say_left_out(options: argparse.Namespace, left_out: list[tuple[dict[str, Any], str, str]]) -> None:
    """Say which files nothing is done with, and why: of each, its record for machines, its path and the reason."""
    if options.json:
        for record, _, reason in left_out:
            say_json({**record, "outcome": _LEFT_OUT, "reason": reason, "error": None})
    elif not options.quiet:
        notes = [f"note: {path} is left out: {reason}" for _, path, reason in left_out]
        more = "note: {:,} more of them (--verbose names them all)"
        warn_some(notes, more, None if options.verbose else _SHOWN)


def _with_metadata(
    options: argparse.Namespace, writing: WritingOptions, work: _Transfer, reading: ReadingOptions | None
) -> Callable[[Job], FileOperation]:
    """What encrypts or re-keys each file; with the files for its fresh key metadata, where that is wanted."""
    paths: dict[str, str | None] = {}
    replace: bool = options.replace_key_metadata or options.resume
    if writing.makes_metadata:
        chosen = [job for job in work.jobs if work.kinds[job.source][0] == PARQUET]
        many = len(work.jobs) > 1 or work.jobs[0].target != options.target
        paths = {job.target: _metadata_path(options, job, many) for job in chosen}
        if not replace:
            for target, path in paths.items():
                assert path is not None
                _refuse_other_key(path, None, target, _read_footer)

    def operation_of(job: Job) -> FileOperation:
        made = None
        if writing.makes_metadata:
            made = KeyMetadata.generate()
            prefix = writing.prefix(job.name)
            if prefix is not None:
                made = KeyMetadata(made.encryption_key, prefix)
        config = writing.config(job.target, job.name, made)
        if reading is None:
            operation: FileOperation = Encrypting(config, missing_columns=options.missing_columns)
        else:
            name = job.name if "/" in job.name else base_name(job.source)
            operation = Rekeying(
                reading.config(job.source, name),
                config,
                plaintext_columns=options.plaintext_columns,
                drop_bloom_filters=options.drop_bloom_filters,
                missing_columns=options.missing_columns,
            )
        return operation if made is None else _Recorded(operation, made, paths[job.target], job.target, replace)

    return operation_of


class _Recorded(FileOperation):
    """Work whose fresh key is on the disk before what it encrypts; see _MetadataFile."""

    def __init__(
        self, work: FileOperation, metadata: KeyMetadata, path: str | None, target: str, replace: bool
    ) -> None:
        self._work = work
        self._metadata = metadata
        self._path = path
        self._target = target
        self._replace = replace

    def run(self, source: str, target: Any, name: str, **options: Any) -> None:
        output = _MetadataFile(self._path, self._metadata, True, self._replace)
        watched = Watched(options.pop("progress"))
        try:
            self._work.run(source, target, name, progress=watched, **options)
        except BaseException:
            output.fail(self._target, watched, lambda: _read_footer(self._target, self._metadata))
            raise
        output.commit(self._metadata, self._target)

    def is_finished(self, source: Entry, target: Location) -> bool:
        """Whether the file can be read with the key metadata that an earlier run wrote for it."""
        from ags1.parquet.keys.properties import EncryptionConfig

        metadata = None if self._path is None else read_metadata(self._path)
        if metadata is None or not metadata.aad_prefix:
            return False
        return Encrypting(EncryptionConfig.for_iceberg(metadata)).is_finished(source, target)


def _read_footer(target: str, metadata: KeyMetadata) -> None:
    from ags1.parquet.keys.properties import EncryptionConfig
    from ags1.parquet.structure.inspecting import inspect

    if inspect(target, EncryptionConfig.for_iceberg(metadata).reading()).encryption is None:
        raise FormatError(f"{target} is not encrypted")


# -- rotate --------------------------------------------------------------------------------------------------------


def rotate(options: argparse.Namespace) -> int:
    from ags1.parquet.keys.key_material import (
        KeyMetadataRewrapper,
        is_key_material_name,
        key_material_path,
        parse_store,
        read_key_material_file,
    )
    from ags1.parquet.rewrite.rotation import holds_key_material, master_keys, rotate_file

    if options.kms is None:
        options.kms = os.environ.get("AGS1_KMS")
    found = expand(options.files, options)
    named = set(options.files)
    with Clients() as clients:
        rewrapper = KeyMetadataRewrapper(clients.open(options), options.new_key_id or {})
        kinds = _kinds([path for path, *_ in found], named)
        material = {path for path, *_ in found if is_key_material_name(path)}
        jobs, left_out = [], []
        for path, name, _ in found:
            kind, reason = kinds[path]
            if path not in material and kind != PARQUET:
                left_out.append(({"file": path}, path, reason))
            elif path in material or is_url(path) or key_material_path(path) not in material:
                jobs.append(Job(path, path, name))
        say_left_out(options, left_out)

        def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
            path = job.source
            started = time.monotonic()
            if path in material:
                counts = _counted(rewrapper.rewrap_file(Location(path)))
            elif holds_key_material(path):
                prefix = aad_prefix(options, job.name) or None
                counts = rotate_file(
                    path, path, rewrapper, aad_prefix=prefix, progress=progress, durable=options.durable
                )
            else:
                beside = key_material_path(path)
                if not is_url(beside) and not os.path.exists(beside):
                    return f"{path}: left out: it has no key material", {"outcome": _LEFT_OUT}
                counts = _counted(rewrapper.rewrap_file(Location(beside)))
            keys = ", ".join(f"{count} under {key_id!r}" for key_id, count in counts.items())
            record = {"outcome": _DONE, "keys": counts, "seconds": round(time.monotonic() - started, 6)}
            return f"{path}: keys re-wrapped: {keys}", record

        def now_under(job: Job) -> Iterable[str] | None:
            path = job.source
            try:
                if path not in material and holds_key_material(path):
                    return master_keys(path, rewrapper, aad_prefix(options, job.name) or None)
                beside = path if path in material else key_material_path(path)
                return _counted(parse_store(read_key_material_file(Location(beside))))
            except FileNotFoundError:
                return ()
            except (Ags1Error, OSError, ValueError):
                # The work on it says why.
                return None

        if not jobs:
            raise UsageError(f"there are no Parquet files in {', '.join(options.files)}")
        refused = _unknown_ids(options.new_key_id or {}, map(now_under, jobs))
        if refused is not None:
            return refused
        return work_through(options, ("rotating", "rotated"), jobs, one, lambda job: {"file": job.source})


def _unknown_ids(new_ids: dict[str, str], found: Iterable[Iterable[str] | None]) -> int | None:
    """Return the exit code if no key is under one of the old ids: before anything is written.

    `found` are the master keys of each file, and None of a file that cannot be read, which may have any.
    """
    missing, under, is_complete = set(new_ids), set[str](), True
    for each in found if missing else ():
        is_complete = is_complete and each is not None
        under.update(each or ())
        missing -= under
        if not missing:
            return None
    if not missing or not under or not is_complete:
        return None
    text = f"ags1: no key is under {_quoted(missing)} of --new-key-id, and nothing was written: "
    if under <= set(new_ids.values()) - set(new_ids):
        warn(f"{text}keys are under {_quoted(under)} already")
        return EXIT_EXISTS
    warn(f"{text}keys are under {_quoted(under)}. Correct the id, or leave it out if an earlier run replaced it")
    return EXIT_USAGE


def _quoted(ids: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(ids)))


def _counted(materials: dict[str, Any]) -> dict[str, int]:
    return dict(Counter(each.master_key_id for each in materials.values()))
