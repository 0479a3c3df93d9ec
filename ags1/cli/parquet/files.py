"""``ags1 parquet`` encrypt, decrypt, rekey and rotate."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace

from ags1.cli.command import OnSpark, Positional, command
from ags1.cli.keys import aad_prefix, read_metadata, warn_of_same_prefix
from ags1.cli.output import refuse_terminal, say_json, warn, warn_some
from ags1.cli.parquet.keys import Clients, KeyReferences, ReadingOptions, WritingOptions, parquet_command
from ags1.cli.paths import (
    STANDARD,
    Job,
    base_name,
    expand,
    is_url,
    no_file_left,
    pair_up,
    refuse_reading,
    shown,
    size_of,
    sources_and_target,
)
from ags1.cli.report import in_time
from ags1.cli.transfer import (
    MetadataFile,
    Watched,
    at_once,
    metadata_path,
    names_of,
    output_of,
    recorded,
    refuse_existing,
    refuse_other_key,
    work_through,
)
from ags1.errors import Ags1Error, FormatError
from ags1.keys import KeyMetadata
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
from ags1.parquet.rewrite.conversions import PlaintextColumnsError
from ags1.parquet.rewrite.operations import (
    COPY,
    OTHER,
    PARQUET,
    FileOperation,
    Lacking,
    classify,
    refuse_missing_columns,
    refuse_others,
)
from ags1.parquet.rewrite.tree_files import DONE, TreeWork
from ags1.parquet.rewrite.trees import FAILED_BEFORE, run_tree
from ags1.storage import Entry, Location, status
from ags1.support.exit_codes import EXIT_EXISTS, EXIT_USAGE, UsageError
from ags1.support.parallel import in_parallel
from ags1.support.typing import Any

_DONE, _COPIED, _LEFT_OUT, _BEFORE = "done", "copied", "left out", "finished before"
_SHOWN = 20
_SHARED = (
    "these keys encrypt {count} files, which all count against the 2^32 invocations that AES GCM allows a key, in this "
    "run and in all others"
)


_SOURCES = sources_and_target("Parquet file, glob ('*.parquet') or directory")
_CHOICE = "missing-columns CHOICE others resume"
_FIELDS = "source, target, outcome (done, copied, left out, finished before), bytes, seconds, error"
_PLACES = {"source": "directory or file, or a URL", "target": "directory that the files go to, under the same names"}
CLUSTER = "workers-threads parallelism quiet report"
_MASTERS = "cache-seconds MASTERS kek-bits kms-instance-id kms-instance-url ENCRYPTION"
READING_ON_SPARK = "cache-seconds PREFIX expected-key-ids allow-plaintext no-check-footer expected-algorithm"
# Of whom the storage has secrets, no master key is known.
SECRETS = {"transfer-key-id": "master key that seals the storage's secrets for tasks (they stay here)"}
_V2 = {"data-page-v2": {"default": "java", "help": "form of V2 pages: java, which Spark reads (java), or arrow"}}


@parquet_command(
    encryption="PARQUET-ENCRYPTION",
    choice=_CHOICE,
    paths=_SOURCES,
    work="jobs WORK",
    needs="(--footer-key KEY | --kms URL --footer-key-id ID | ...)",
    fields=_FIELDS,
    spark=OnSpark(
        "encrypt_parquet",
        _PLACES,
        f"footer-key-id! workers-kms {_MASTERS} missing-columns CHOICE others keep-going no-resume {CLUSTER}",
        _V2,
    ),
)
def encrypt(encryption: Namespace, choice: Namespace, paths: Namespace, work: Namespace) -> int:
    r"""Pages are moved, not decoded; statistics, indexes and Bloom filters are kept and protected.

    columns:
      Without --column-key or --column-key-id every column is encrypted with the
      footer key. With them, the other columns stay plaintext, or take the footer
      key with --encrypt-all.

    many files:
      With --kms or --key-metadata-out every file has fresh keys. --footer-key
      encrypts many files with the same keys only with --shared-keys: all of them
      count against the 2^32 invocations that AES GCM allows a key.
      A directory's Parquet files get the same names below TARGET. _metadata,
      .NAME.crc and old key material are left out, empty markers such as _SUCCESS
      are copied, and --others says what becomes of the rest; --include selects.

    examples:
      ags1 parquet encrypt in.parquet out.parquet --footer-key file:f.key \
          --column-key ssn,salary=file:s.key
      ags1 parquet encrypt people/ vault/ --kms 'aws:?region=eu-central-1' \
          --footer-key-id alias/lake --column-key-id ssn,salary=alias/pii \
          --aad-prefix 'people/{path}'
      ags1 parquet encrypt data/ vault/ --key-metadata-out keys/
    """
    with Clients() as clients:
        writing = WritingOptions(encryption, KeyReferences(), clients)
        transfer = _Transfer(paths, choice, work, ("encrypting", "encrypted"), encrypting=True)
        _check_shared(encryption, writing, transfer)
        return transfer.run(_operation("encrypt", encryption, writing, transfer))


@parquet_command(
    decryption="PARQUET-DECRYPTION",
    drop_bloom_filters="drop-bloom-filters",
    choice="CHOICE others resume",
    paths=_SOURCES,
    work="jobs WORK",
    needs="(--footer-key KEY | --kms URL | ...)",
    fields=_FIELDS,
    spark=OnSpark(
        "decrypt_parquet",
        _PLACES,
        f"workers-kms transfer-key-id {READING_ON_SPARK} drop-bloom-filters CHOICE others keep-going no-resume "
        + CLUSTER,
        SECRETS,
    ),
)
def decrypt(
    decryption: Namespace, drop_bloom_filters: bool, choice: Namespace, paths: Namespace, work: Namespace
) -> int:
    r"""Every module is authenticated before the result appears.

    examples:
      ags1 parquet decrypt out.parquet in.parquet --footer-key file:f.key \
          --column-key ssn,salary=file:s.key
      ags1 parquet decrypt vault/ people/ --kms 'aws:?region=eu-central-1'
      ags1 parquet decrypt a.parquet b.parquet --key-for kf=file:f.key
    """
    with Clients() as clients:
        reading = ReadingOptions(decryption, KeyReferences(), clients)
        reading.require()
        transfer = _Transfer(paths, choice, work, ("decrypting", "decrypted"), encrypting=False)
        operation = FileOperation(
            "decrypt",
            lambda name: reading.config(transfer.jobs[name].source, name),
            drop_bloom_filters=drop_bloom_filters,
        )
        return transfer.run(operation)


@parquet_command(
    encryption="PARQUET-ENCRYPTION new-kms",
    old="old-footer-key old-column-key old-key-for old-key-metadata old-aad-prefix old-aad-prefix-hex allow-plaintext "
    "no-check-footer",
    columns="plaintext-columns drop-bloom-filters",
    choice=_CHOICE,
    paths=_SOURCES,
    work="jobs WORK",
    needs="--old-... (--footer-key KEY | ...)",
    fields=_FIELDS,
    spark=OnSpark(
        "rekey_parquet",
        _PLACES,
        f"footer-key-id! workers-kms new-kms {_MASTERS} old-aad-prefix old-aad-prefix-hex old-expected-algorithm "
        "allow-plaintext no-check-footer plaintext-columns drop-bloom-filters missing-columns CHOICE others "
        f"keep-going no-resume {CLUSTER}",
        _V2,
    ),
)
def rekey(
    encryption: Namespace, old: Namespace, columns: Namespace, choice: Namespace, paths: Namespace, work: Namespace
) -> int:
    r"""Other keys, another algorithm or footer, more or fewer encrypted columns. An encrypted column that the new
    options do not name would become plaintext: --plaintext-columns says which may. A column with a key of its own
    gets the footer key only with --encrypt-all. An AAD prefix stays, unless --aad-prefix gives another one.

    old and new:
      The options of `ags1 parquet encrypt` say how TARGET is encrypted, the same
      as ever; --old-footer-key, --old-column-key, --old-key-for, --old-key-metadata
      and --old-aad-prefix say how SOURCE is read, as their namesakes of
      `ags1 parquet decrypt` do. Without any key among them, SOURCE is read with
      --kms; --new-kms is the service of the new keys, if it is another one. Column
      chunks whose key, algorithm and AAD prefix stay the same are copied as they
      are.

    examples:
      ags1 parquet rekey a.parquet b.parquet --old-footer-key file:old.key \
          --footer-key file:new.key
      ags1 parquet rekey a.parquet b.parquet --old-footer-key file:f.key \
          --old-column-key ssn=file:s.key --footer-key file:f.key \
          --column-key ssn=file:new.key
      ags1 parquet rekey vault/ other/ --kms local:keys.json \
          --new-kms 'aws:?region=eu-central-1' --footer-key-id alias/lake
    """
    kms = {name: getattr(encryption, name) for name in ("kms", "password_file", "key_file")}
    decryption = Namespace(**{name.removeprefix("old_"): value for name, value in vars(old).items()}, **kms)
    with Clients() as clients:
        references = KeyReferences()
        writing = WritingOptions(encryption, references, clients)
        reading = ReadingOptions(decryption, references, clients, old=True)
        reading.require("--old-footer-key file:PATH or env:NAME, --kms URL, --old-key-metadata PATH")
        transfer = _Transfer(paths, choice, work, ("re-keying", "re-keyed"), encrypting=True)
        _check_shared(encryption, writing, transfer)

        def old_config(name: str) -> DecryptionConfig:
            path = transfer.jobs[name].source
            return reading.config(path, name if "/" in name else base_name(path))

        return transfer.run(_operation("rekey", encryption, writing, transfer, old_config, **vars(columns)))


# -- files ---------------------------------------------------------------------------------------------------------


def _jobs(
    paths: Namespace, choice: Namespace, work: Namespace, *, encrypting: bool
) -> tuple[list[Job], dict[str, tuple[str, str]]]:
    """What goes where, and what each source is (by its path)."""
    from ags1.dataset.selection import Filter

    if STANDARD in paths.sources:
        raise UsageError("a Parquet file is read from its end, so standard input cannot be one: give a file")
    jobs = pair_up(paths, work, encrypting=encrypting, suffix="")
    if paths.target == STANDARD:
        refuse_terminal("a Parquet file")
    chosen = Filter(choice.include, choice.exclude)
    jobs = [job for job in jobs if chosen.accepts(job.name)]
    if not jobs:
        raise UsageError(str(no_file_left(", ".join(paths.sources), choice.include, choice.exclude)))
    kinds = _kinds([job.source for job in jobs], set(paths.sources))
    if choice.others == "error":
        others = [job.source for job in jobs if kinds[job.source][0] == OTHER]
        way_out = "--others copy copies them unencrypted, --others skip leaves them out, --include '*.parquet' selects"
        refuse_others(others, way_out)
    elif choice.others == "copy":
        kinds.update((path, (COPY, reason)) for path, (kind, reason) in kinds.items() if kind == OTHER)
    return jobs, kinds


def _kinds(paths: list[str], named: set[str]) -> dict[str, tuple[str, str]]:
    """What each file is; those that were named themselves are Parquet files, whatever they look like."""
    known = set(paths)
    return {path: (PARQUET, "") if path in named or is_url(path) else classify(path, path, known) for path in paths}


def parquet_files(patterns: list[str], said: Namespace) -> list[tuple[str, str]]:
    """Path and name of the Parquet files that names, globs and directories stand for; UsageError if there are none."""
    if STANDARD in patterns:
        raise UsageError("a Parquet file is read from its end, so standard input cannot be one: give a file")
    refuse_reading(patterns, "ls VAULT")
    found = expand(patterns, said)
    kinds = _kinds([path for path, *_ in found], set(patterns))
    chosen = [(path, name) for path, name, _ in found if kinds[path][0] == PARQUET]
    if not chosen:
        raise UsageError(f"there are no Parquet files in {', '.join(patterns)}")
    return chosen


def _check_shared(given: Namespace, writing: WritingOptions, transfer: _Transfer) -> None:
    count = sum(kind == PARQUET for kind, _ in transfer.kinds.values())
    if count < 2:
        return
    if not writing.fresh:
        said = _SHARED.format(count=f"{count:,}")
        if not given.shared_keys:
            raise UsageError(
                f"{said}: use --kms URL or --key-metadata-out PATH, which make fresh keys for each file, or say "
                "--shared-keys"
            )
        if not transfer.work.quiet:
            warn(f"ags1: warning: {said}")
    if writing.same_prefix:
        warn_of_same_prefix(transfer.work, count)


class _Transfer:
    """The work on many files, each to its target, of which :func:`run_tree` calls one part after the other."""

    def __init__(
        self, paths: Namespace, choice: Namespace, work: Namespace, words: tuple[str, str], *, encrypting: bool
    ) -> None:
        self.paths, self.choice, self.work = paths, choice, work
        jobs, self.kinds = _jobs(paths, choice, work, encrypting=encrypting)
        self.jobs = {job.name: job for job in jobs if self.kinds[job.source][0] in (PARQUET, COPY)}
        self.files = [job for job in self.jobs.values() if self.kinds[job.source][0] == PARQUET]
        self.is_alone = len(jobs) == 1 and jobs[0].target == paths.target
        self.source = Location(paths.sources[0]) if len(paths.sources) == 1 and not paths.files_from else None
        self._left_out = [job for job in jobs if job.name not in self.jobs]
        self._words = (words[0], f"{words[1]} or found finished" if choice.resume else words[1])
        self._code = 0

    def run(self, operation: FileOperation) -> int:
        choice, durable = self.choice, self.paths.durable
        say_left_out(self.work, [(names_of(job), job.source, self.kinds[job.source][1]) for job in self._left_out])
        if not choice.resume:
            refuse_existing([*self.jobs.values()], overwrite=self.paths.overwrite)
        target = Location(self.paths.target)
        tree = TreeWork(
            lambda: operation,
            lambda each: self.kinds[each.path],
            target,
            choice.others,
            choice.resume,
            self.paths.overwrite,
            durable,
        )
        if self.is_alone:
            # It may be a pipe, or a link.
            if operation.missing_columns == "skip":
                refuse_missing_columns(self.lacking(tree), "skip", "")
            self._do(self._words, self.files, lambda job, progress: self._write(job, operation, progress))
        else:
            run_tree(tree, self, stops=len(self.files) > 1)
        return self._code

    def entries(self) -> list[Entry]:
        return [Entry(name, Location(job.source), job.size or 0) for name, job in sorted(self.jobs.items())]

    def others(self, tree: TreeWork) -> list[str]:
        """None: they were refused before a key was asked for."""
        return []

    def lacking(self, tree: TreeWork) -> Iterator[Lacking]:
        def look(job: Job) -> Lacking:
            return replace(tree.operation().lacking(job.source, job.name), name=job.source)

        with closing(in_parallel(look, self.files, at_once(self.work.jobs, self.files))) as looked:
            yield from looked

    def transfer(self, tree: TreeWork) -> list[Job]:
        threads = self.work.threads
        self._do(self._words, self.files, lambda job, told: tree.transfer(_entry(job), threads, told).status == DONE)
        return [job for job in self.jobs.values() if self.kinds[job.source][0] == COPY]

    def finish(self, tree: TreeWork, later: Iterable[Job]) -> None:
        if self._code:
            say_left_out(self.work, [(names_of(job), job.source, FAILED_BEFORE) for job in later])
        elif later:
            copied = ("copying", "copied")
            self._do(copied, [*later], lambda job, progress: tree.copy(_entry(job), None, progress).status == DONE)

    def _do(self, words: tuple[str, str], jobs: list[Job], do: Callable[[Job, Callable[..., None]], bool]) -> None:
        def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
            started = time.monotonic()
            try:
                if not do(job, progress):
                    return f"{job.target}: finished before", {"outcome": _BEFORE}
            except PlaintextColumnsError as error:
                recorded(error, {"plaintext_columns": error.columns})
                raise
            size, seconds = size_of(job), time.monotonic() - started
            is_copy = self.kinds[job.source][0] == COPY
            line = (
                f"{shown(job.source)} -> {job.target}  {'copied as it is' if is_copy else in_time(size or 0, seconds)}"
            )
            return line, {"outcome": _COPIED if is_copy else _DONE, "bytes": size, "seconds": round(seconds, 6)}

        self._code = work_through(self.work, words, jobs, one, names_of) if jobs else 0

    def _write(self, job: Job, operation: FileOperation, progress: Callable[..., None]) -> bool:
        """Do the work, unless an earlier run has finished it: then return False."""
        if self.choice.resume and job.target != STANDARD and operation.is_finished(_entry(job), Location(job.target)):
            return False
        refuse_existing([job], overwrite=self.paths.overwrite)
        how = {"threads": self.work.threads, "progress": progress, "durable": self.paths.durable}
        operation.run(job.source, output_of(self.paths, job), job.name, **how)
        return True


def _entry(job: Job) -> Entry:
    found = status(Location(job.source))
    return Entry(job.name, found.location, found.size, found.modified, found.etag)


def say_left_out(said: Namespace, left_out: list[tuple[dict[str, Any], str, str]]) -> None:
    """Say which files nothing is done with, and why: of each, its record for machines, its path and the reason."""
    if said.json:
        for record, _, reason in left_out:
            say_json({**record, "outcome": _LEFT_OUT, "reason": reason, "error": None})
    elif not said.quiet:
        notes = [f"note: {path} is left out: {reason}" for _, path, reason in left_out]
        more = "note: {:,} more of them (--verbose names them all)"
        warn_some(notes, more, None if said.verbose else _SHOWN)


def _operation(
    verb: str,
    given: Namespace,
    writing: WritingOptions,
    transfer: _Transfer,
    decryption: Callable[[str], DecryptionConfig] | None = None,
    **more: Any,
) -> FileOperation:
    """What encrypts or re-keys each file; with the files for its fresh key metadata, where that is wanted."""

    def config(name: str, made: KeyMetadata | None = None) -> EncryptionConfig:
        return writing.config(transfer.jobs[name].target, name, made)

    more["missing_columns"] = transfer.choice.missing_columns
    if not writing.makes_metadata:
        return FileOperation(verb, decryption, config, **more)
    paths = {job.name: metadata_path(given.key_metadata_out, job, not transfer.is_alone) for job in transfer.files}
    replace: bool = given.replace_key_metadata or transfer.choice.resume
    for name, path in paths.items() if not replace else ():
        assert path is not None
        refuse_other_key(path, None, transfer.jobs[name].target, _read_footer)

    def operation_of(name: str, made: KeyMetadata) -> FileOperation:
        return FileOperation(verb, decryption, config(name, made), **more)

    places = {job.name: (paths[job.name], job.target) for job in transfer.files}
    return _Recorded(operation_of, writing.prefix, places, replace)


class _Recorded(FileOperation):
    """Work whose fresh key is on the disk before what it encrypts; see MetadataFile.

    `places` are the file of the key metadata, and the target, of each file by its name.
    """

    def __init__(
        self,
        operation_of: Callable[[str, KeyMetadata], FileOperation],
        prefix_of: Callable[[str], bytes | None],
        places: dict[str, tuple[str | None, str]],
        replace: bool,
    ) -> None:
        super().__init__("encrypt")
        self._operation_of, self._prefix_of, self._places, self._replace = operation_of, prefix_of, places, replace

    def run(self, source: Any, target: Any, name: str, **options: Any) -> None:
        made, (path, place) = KeyMetadata.generate(), self._places[name]
        if (prefix := self._prefix_of(name)) is not None:
            made = KeyMetadata(made.encryption_key, prefix)
        output = MetadataFile(path, made, True, self._replace)
        watched = Watched(options.pop("progress"))
        try:
            self._operation_of(name, made).run(source, target, name, progress=watched, **options)
        except BaseException:
            output.fail(place, watched, lambda: _read_footer(place, made))
            raise
        output.commit(made, place)

    def lacking(self, source: Any, name: str) -> Lacking:
        return self._operation_of(name, KeyMetadata.generate()).lacking(source, name)

    def is_finished(self, source: Entry, target: Location, *, overwrite: bool = True) -> bool:
        """Whether the file can be read with the key metadata that an earlier run wrote for it."""
        path, _ = self._places[source.name]
        metadata = None if path is None else read_metadata(path)
        if metadata is None or not metadata.aad_prefix:
            return False
        operation = FileOperation("encrypt", None, EncryptionConfig.for_iceberg(metadata))
        return operation.is_finished(source, target, overwrite=overwrite)


def _read_footer(target: str, metadata: KeyMetadata) -> None:
    from ags1.parquet.structure.inspecting import inspect

    if inspect(target, EncryptionConfig.for_iceberg(metadata).reading()).encryption is None:
        raise FormatError(f"{target} is not encrypted")


# -- rotate --------------------------------------------------------------------------------------------------------


@command(
    kms="KMS",
    new_ids="new-key-ids",
    prefix="PREFIX",
    files=Positional("FILE...", "Parquet file, glob, directory, or key material file"),
    durable="durable",
    work="jobs WORK",
    needs="--kms URL",
    fields="file, outcome (done, left out), keys (by master key), seconds, error",
    changed={"aad-prefix": "for files that do not contain theirs, as they have it"},
)
def rotate(
    kms: Namespace,
    new_ids: dict[str, str] | None,
    prefix: Namespace,
    files: list[str],
    durable: bool,
    work: Namespace,
) -> int:
    r"""The data keys stay what they are: whoever kept one can still read, and only
    `ags1 parquet rekey` changes that. Key material beside a file is replaced, and
    the file is not touched; of a file that holds its key material itself, the
    footer is rewritten. Each is replaced whole or not at all; after an
    interruption, run it again. If no key is under an old id of --new-key-id,
    nothing is written: the exit code is 9 where all keys are under new ones
    already, and 2 otherwise.

    examples:
      ags1 parquet rotate vault/ --kms 'aws:?region=eu-central-1' \
          --new-key-id alias/lake=alias/lake-2027
      ags1 parquet rotate vault/ --kms vault:https://kms:8200
    """
    from ags1.parquet.keys.key_material import (
        KeyMetadataRewrapper,
        is_key_material_name,
        key_material_path,
        parse_store,
        read_key_material_file,
    )
    from ags1.parquet.rewrite.rotation import holds_key_material, master_keys, rotate_file

    if kms.kms is None:
        kms.kms = os.environ.get("AGS1_KMS")
    new_ids = new_ids or {}
    found = expand(files, work)
    named = set(files)
    with Clients() as clients:
        rewrapper = KeyMetadataRewrapper(clients.open(kms), new_ids)
        kinds = _kinds([path for path, *_ in found], named)
        material = {path for path, *_ in found if is_key_material_name(path)}
        jobs, left_out = [], []
        for path, name, _ in found:
            kind, reason = kinds[path]
            if path not in material and kind != PARQUET:
                left_out.append(({"file": path}, path, reason))
            elif path in material or is_url(path) or key_material_path(path) not in material:
                jobs.append(Job(path, path, name))
        say_left_out(work, left_out)

        def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
            path = job.source
            started = time.monotonic()
            if path in material:
                counts = _counted(rewrapper.rewrap_file(Location(path)))
            elif holds_key_material(path):
                of_file = aad_prefix(prefix.aad_prefix, job.name) or None
                counts = rotate_file(path, path, rewrapper, aad_prefix=of_file, progress=progress, durable=durable)
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
                    return master_keys(path, rewrapper, aad_prefix(prefix.aad_prefix, job.name) or None)
                beside = path if path in material else key_material_path(path)
                return _counted(parse_store(read_key_material_file(Location(beside))))
            except FileNotFoundError:
                return ()
            except (Ags1Error, OSError, ValueError):
                # The work on it says why.
                return None

        if not jobs:
            raise UsageError(f"there are no Parquet files in {', '.join(files)}")
        refused = _unknown_ids(new_ids, map(now_under, jobs))
        if refused is not None:
            return refused
        return work_through(work, ("rotating", "rotated"), jobs, one, lambda job: {"file": job.source})


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
