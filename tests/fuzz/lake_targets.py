"""What of tables and datasets is fuzzed: one file of a real one is changed by somebody without keys, and it is used.

Wrong is: an error that is not documented, another content of what is authenticated, a file that is written or changed,
a key, a row or a control character of the file in what is said.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import ags1
from ags1 import audit, dataset, iceberg
from ags1.cli import main
from ags1.kms import MemoryKms
from tests import checks
from tests.fuzz.choices import Choices
from tests.fuzz.lake_mutations import change_file
from tests.iceberg.delete_lake import DeleteLake
from tests.iceberg.keys import keystore

KEYS = {"keyA": b"0123456789012345", "keyB": b"1123456789012345"}
SECRET = "a-row-that-nobody-may-see"
ROWS = pyarrow.table(
    {
        "id": range(6),
        "place": ["a", "b", "a", "b", "c", "c"],
        "text": [f"{SECRET}-{each}" for each in range(6)],
        "more": [{"n": 1.5, "l": [each]} for each in range(6)],
    }
)
KINDS = ("encrypted", "plain", "deletes")
FILTERS = ("id >= 0", "place > 'A'", "id is not null", "place in ('a', 'b', 'c')", "not place = 'z'", "place like '%'")
DOCUMENTED = (ags1.Ags1Error, OSError, ValueError)


@dataclass
class Lake:
    """A directory of one table or dataset.

    Attributes
    ----------
    files : dict
        Every file of it, with its bytes.
    authentic : frozenset of Path
        Those whose every byte something authenticates.
    current : frozenset of Path
        Those of the newest snapshot or version.
    content : Any
        What an honest reader reads.
    """

    root: Path
    metadata: Path | None = None
    encrypted: bool = True
    content: Any = None
    files: dict[Path, bytes] = field(default_factory=dict)
    authentic: frozenset[Path] = frozenset()
    current: frozenset[Path] = frozenset()

    def remember(self) -> None:
        """Look at the files, in an order that is the same whatever random bytes their names have."""
        paths = [each for each in self.root.rglob("*") if each.is_file()]
        paths.sort(key=lambda each: (each.parent, re.sub("[0-9a-f-]", "", each.name), each.stat().st_mtime_ns))
        self.files = {each: each.read_bytes() for each in paths}


@cache
def directory() -> Path:
    made = Path(tempfile.mkdtemp(prefix="ags1-fuzz-lakes-"))
    atexit.register(shutil.rmtree, made, True)
    return made


@cache
def kms_arguments() -> tuple[str, ...]:
    """A KMS of the command line with the same keys."""
    return ("--kms", keystore(directory(), KEYS))


def rows_of(table: Any) -> list[str]:
    return sorted(repr(each) for each in table.to_pylist())


@cache
def table_lake(kind: str) -> Lake:
    root = directory() / kind
    if kind == "deletes":
        made = delete_lake(root)
    else:
        table = iceberg.create_table(None, str(root), ROWS.schema, ["place"], kms=MemoryKms(KEYS), key_id="keyA")
        table.append(ROWS)
        table.append(ROWS)
        table.delete("id = 3")
        if kind == "plain":
            iceberg.decrypt_table(iceberg.load_table(None, str(root), kms=MemoryKms(KEYS)))
        metadata = max((root / "metadata").glob("*.metadata.json"))
        fields = json.loads(metadata.read_text())
        fields["refs"]["old"] = {"snapshot-id": fields["snapshots"][0]["snapshot-id"], "type": "tag"}
        metadata.write_text(json.dumps(fields))
        made = Lake(root, metadata, kind != "plain")
    assert made.metadata is not None
    opened = open_table(made)
    made.content = rows_of(opened.scan().to_arrow())
    made.remember()
    used = {Path(each.removeprefix("file://")) for each in opened.files("all").column("path").to_pylist()}
    # Of older metadata files nothing is read.
    made.files = {each: data for each, data in made.files.items() if each in used or each == made.metadata}
    made.authentic = frozenset(used if made.encrypted else ())
    made.current = frozenset(Path(each.removeprefix("file://")) for each in opened.files().column("path").to_pylist())
    return made


def delete_lake(root: Path) -> Lake:
    """Position and equality deletes of every format, in plaintext."""
    root.mkdir()
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "place", StringType(), required=False)
    )
    positions = Schema(
        NestedField(2147483546, "file_path", StringType(), required=True),
        NestedField(2147483545, "pos", LongType(), required=True),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "place"), spec_id=0)
    lake = DeleteLake(root, schema, specs=[spec])
    for form in (FileFormat.PARQUET, FileFormat.AVRO):
        rows = [{"id": each, "place": "a"} for each in range(8)]
        path = lake.add(rows, 1, partition=["a"], file_format=form, bounds={1: (0, 7)})
        gone = [{"file_path": path, "pos": each} for each in (1, 5)]
        content = DataFileContent.POSITION_DELETES
        lake.add(gone, 2, schema=positions, content=content, partition=["a"], file_format=form)
        lake.add([{"id": 6, "place": "a"}], 3, equality_ids=[1], partition=["a"], file_format=form)
    lake.open()
    return Lake(root, next(root.glob("*.json")), encrypted=False)


@cache
def vault_lake() -> Lake:
    """A dataset of three versions, and the record of a run that was not completed."""
    root, raw = directory() / "vault", directory() / "raw"
    (raw / "d").mkdir(parents=True)
    contents = {"a.txt": SECRET.encode(), "d/b.bin": checks.pattern(3000), "d/empty": b""}
    for name, data in contents.items():
        (raw / name).write_bytes(data)
    with dataset.encrypt(raw, root, MemoryKms(KEYS), "keyA") as opened:
        opened.rm("d/b.bin")
        opened.restore(1)
        contents = {each.path: opened.open(each.path).read() for each in opened.files}
        objects = frozenset(root / part.name for each in opened.files for part in each.parts)
    made = Lake(root, None, True, contents, authentic=objects)
    made.remember()
    return made


# -- using them --------------------------------------------------------------------------------------------------------


def open_table(lake: Lake, **options: Any) -> Any:
    if not lake.encrypted:
        options["allow_plaintext"] = True
    return iceberg.open_table(str(lake.metadata), MemoryKms(KEYS), **options)


def command(arguments: list[str]) -> tuple[int, str]:
    """The exit code of a command and what it says, to people and machines."""
    said = io.BytesIO()
    with (
        io.TextIOWrapper(said, "utf-8", "surrogateescape", write_through=True) as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        code = main(arguments)
        text = said.getvalue().decode(errors="replace")
    return code, text


@contextlib.contextmanager
def changed(lake: Lake, choices: Choices) -> Iterator[Path | None]:
    """The lake with one file changed, which is then as it was; None if the change has made no difference."""
    paths = [*lake.files, *[each for each in lake.files if each.suffix in (".json", ".avro", ".puffin")]]
    path = choices.one_of(paths)
    data = lake.files[path]
    made = change_file(choices, path.name, data, [lake.files[choices.one_of(paths)]])
    path.write_bytes(made)
    before = stamps(lake.root)
    try:
        yield path if made != data else None
        assert stamps(lake.root) == before, "a reader has written"
    finally:
        path.write_bytes(data)


def stamps(root: Path) -> dict[str, tuple[int, int]]:
    return {str(each): (each.lstat().st_mtime_ns, each.lstat().st_size) for each in root.rglob("*") if each.is_file()}


def same_blocks(lake: Lake, path: Path) -> bool:
    """Whether a stream is of the same one block: nothing authenticates how long others would be, if there were any."""
    made, data = path.read_bytes(), lake.files[path]
    return made[:4] + made[8:] == data[:4] + data[8:]


def judge_text(text: str, lake: Lake) -> None:
    """What is said of a damaged file has nothing secret in it, and nothing that a terminal obeys."""
    assert "--help`" not in text, "the command was not even tried"
    assert not checks.leaks({"what is said": text.encode(errors="replace")}, KEYS)
    assert "\x1b" not in text, "a control character of a file reaches the terminal"
    assert len(text) < 1 << 20, "what is said grows without bound"


def refused(call: Callable[[], Any], lake: Lake, path: Path | None) -> None:
    """Call it; what it raises must be documented, and say nothing that is secret."""
    raised: Exception | None = None
    try:
        call()
    except DOCUMENTED as error:
        raised = error
    if raised is None:
        return
    # A plain ValueError is of wrong arguments, and there are none.
    assert isinstance(raised, (ags1.Ags1Error, OSError)), f"{raised!r} is not documented"
    text = str(raised)
    assert SECRET not in text, "a row in a message"
    assert not checks.leaks({"the message": text.encode(errors="replace")}, KEYS)
    assert path is not None, f"refused what nobody has changed: {raised!r}"


def table(data: bytes) -> None:
    """Tables, encrypted or not, by what reads them."""
    choices = Choices(data)
    lake = table_lake(choices.one_of(KINDS))
    use = choices.below(9)
    with changed(lake, choices) as path:
        authentic = path in lake.authentic
        read = authentic and path in lake.current

        def scanned() -> None:
            found = open_table(lake)
            selected = found.scan(row_filter=choices.one_of(FILTERS))
            rows = [selected.to_arrow(), selected.to_record_batches().read_all()][choices.below(2)]
            if authentic:
                assert rows_of(rows) == lake.content, "other rows of what is authenticated"

        def counted() -> None:
            number = open_table(lake).scan().count()
            if authentic:
                assert number == len(lake.content), "another number of rows of what is authenticated"

        def verified() -> None:
            report = open_table(lake).verify()
            str(report.to_dict()), str(report)
            if authentic:
                assert not report.ok, "a changed file is verified"

        def loaded() -> None:
            from ags1.iceberg import load_table

            place = lake.root if lake.metadata.parent != lake.root else lake.metadata
            load_table(None, str(place), kms=MemoryKms(KEYS), allow_plaintext=not lake.encrypted).files(sizes=True)

        def audited() -> None:
            report = open_table(lake).audit()
            str(report.to_dict()), str(report)

        def lake_audited() -> None:
            report = audit.audit(lake.root, kms=choices.one_of([None, MemoryKms(KEYS)]))
            json.dumps(report.to_dict())

        def pruned() -> None:
            keys = iceberg.EncryptionKeys.from_table_metadata(lake.metadata)
            keys.prune(str(lake.metadata))
            str(open_table(lake).tree())

        calls = (scanned, counted, verified, loaded, audited, lake_audited, pruned)
        if use < len(calls):
            refused(calls[use], lake, path)
            return
        plaintext = () if lake.encrypted else ("--allow-plaintext",)
        arguments = choices.one_of(
            [
                ["iceberg", "scan", "--format", choices.one_of(["table", "json", "csv"]), *plaintext],
                ["iceberg", "audit", *choices.one_of([[], ["--json"]]), *plaintext],
                ["iceberg", "verify", *choices.one_of([[], ["--json"]]), *plaintext],
                ["iceberg", "inspect", *choices.one_of([[], ["--json"]])],
                ["iceberg", "files", *choices.one_of([[], ["--format", "json"]]), *plaintext],
                ["iceberg", "prune", "--dry-run"],
                ["audit", *choices.one_of([[], ["--json"], ["--allow", "*.parquet"]])],
                ["inspect", *choices.one_of([[], ["--json"]])],
            ]
        )
        place = lake.root if arguments[0] == "audit" else lake.metadata
        if arguments[0] == "inspect":
            code, said = command([*arguments, str(path or lake.metadata)])
        else:
            keys = () if "prune" in arguments else kms_arguments()
            code, said = command([*arguments, str(place), *keys])
        judge_text(said, lake)
        if (read and "scan" in arguments) or (authentic and "verify" in arguments):
            assert code not in (0, 2), f"exit code {code} although a file was changed"
        assert SECRET not in said or "scan" in arguments, "a row in a message"


def vault(data: bytes) -> None:
    """Datasets, by what reads them."""
    choices = Choices(data)
    lake = vault_lake()
    use = choices.below(8)
    with changed(lake, choices) as path:

        def opened() -> dataset.Dataset:
            return dataset.open(lake.root, MemoryKms(KEYS))

        def read() -> None:
            with opened() as found:
                if found.version < 3:
                    return
                assert {each.path: found.open(each.path).read() for each in found.files} == lake.content

        def verified() -> None:
            with opened() as found:
                report = found.verify()
                assert not report.ok or path not in lake.authentic or same_blocks(lake, path), (
                    "a changed file is verified"
                )
                [str(each) for each in report.findings]

        def versions() -> None:
            with opened() as found:
                [str(each) for each in found.versions()]
                list(found.changed_since(1))

        def expired() -> None:
            with opened() as found:
                found.expire(older_than=None, grace=0, dry_run=True)

        def lake_audited() -> None:
            report = audit.audit(lake.root, kms=choices.one_of([None, MemoryKms(KEYS)]))
            json.dumps(report.to_dict())

        calls = (read, verified, versions, expired, lake_audited)
        if use < len(calls):
            refused(calls[use], lake, path)
            return
        arguments = choices.one_of(
            [
                ["dataset", "verify"], ["dataset", "verify", "--json"], ["dataset", "ls"], ["dataset", "cat", "a.txt"],
                ["dataset", "versions"], ["dataset", "versions", "--json"], ["audit"],
                ["dataset", "expire", "--dry-run", "--keep", "1", "--older-than", "0d"],
            ]
        )  # fmt: skip
        action = 1 if arguments[0] == "audit" else 2
        _, said = command([*arguments[:action], str(lake.root), *arguments[action:], *kms_arguments()])
        judge_text(said, lake)
        assert SECRET not in said or "cat" in arguments, "plaintext in a message"


TARGETS: dict[str, Callable[[bytes], None]] = {"table": table, "dataset": vault}


def seeds(name: str) -> list[bytes]:
    """Inputs to begin with; what they are about is made now."""
    kms_arguments()
    if name == "dataset":
        vault_lake()
        return [
            bytes([use, path, 3 + use]) + bytes(range(path, path + 60)) for use in range(8) for path in range(0, 30, 5)
        ]
    for kind in KINDS:
        table_lake(kind)
    return [
        bytes([kind, use, path, 3 + path % 7]) + bytes(range(use, use + 60))
        for kind in range(len(KINDS))
        for use in range(9)
        for path in range(0, 24, 6)
    ]
