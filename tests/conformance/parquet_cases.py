"""The cases of Parquet Modular Encryption: files of each mode, and attacks on them as changes of bytes.

The slow writer of the tests makes the files, so that each form exists whatever writers are at hand. The plaintext files
are PyArrow's: ``python -m tests.conformance.parquet_cases`` makes them anew, after which every case is another.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.conformance.loader import DIRECTORY
from tests.parquet.reference import open_encrypted
from tests.parquet.reference_model import CTR_PAGES, GCM, File, Refused
from tests.parquet.reference_writer import Encryption, encrypt_reference

FOOTER_KEY = b"0123456789012345"
NAME_KEY = b"1234567890123450"
SSN_KEY = b"1234567890123451"
KEY_24 = b"012345678901234567890123"
KEY_32 = b"01234567890123456789012345678901"
OTHER = b"not the right key"[:16]
PREFIX = b"warehouse/people"
COLUMNS = {"name": NAME_KEY, "ssn": SSN_KEY}
MASTER_KEYS = {"kf": b"9123456789012345", "kc1": b"9123456789012346", "kc2": b"9123456789012347"}
SUFFIX = ".parquet.encrypted"

Fields = dict[str, Any]


def rows() -> pa.Table:
    """The rows of every file."""
    numbers = range(60)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [None if n % 7 == 0 else f"name {n % 9}" for n in numbers],
            "ssn": [f"{n:09}" for n in numbers],
            "salary": [n * 100.5 for n in numbers],
            "tags": pa.array([None if n % 5 == 0 else list(range(n % 3)) for n in numbers], pa.list_(pa.int32())),
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("name", pa.string()),
                pa.field("ssn", pa.string(), nullable=False),
                pa.field("salary", pa.float64(), nullable=False),
                pa.field("tags", pa.list_(pa.int32())),
            ]
        ),
    )


def write_plain() -> None:
    """Write the plaintext files and their rows."""
    folder = DIRECTORY / "parquet"
    folder.mkdir(exist_ok=True)
    for version, name in (("1.0", "v1"), ("2.0", "v2")):
        pq.write_table(
            rows(),
            folder / f"{name}.parquet",
            row_group_size=30,
            data_page_version=version,
            data_page_size=100,
            write_batch_size=10,
            compression="none",
            use_dictionary=["name"],
            write_page_index=True,
            write_page_checksum=True,
            bloom_filter_options={"ssn": {"ndv": 60, "fpp": 0.1}},
        )
    (folder / "rows.json").write_text(json.dumps(rows().to_pylist(), indent=1) + "\n")


@dataclass(frozen=True)
class Mode:
    """A file: how it is encrypted, and what a reader is given."""

    name: str
    comment: str
    encryption: Encryption
    plain: str = "v1"
    # The content of the key material file, if the file's own key metadata only refers to it.
    material: Mapping[str, str] | None = None

    @property
    def file(self) -> str:
        return f"parquet/{self.name}{SUFFIX}"

    def keys(self) -> Fields:
        """The keys and the prefix in the case's fields."""
        own = self.encryption
        supplied = own.aad_prefix if not own.store_aad_prefix else None
        columns = {str(name): key.hex() for name, key in (own.column_keys or {}).items()}
        found: Fields = {
            "footer_key": own.footer_key.hex(),
            "column_keys": columns,
            "aad_prefix": None if supplied is None else supplied.hex(),
            "master_keys": {name: key.hex() for name, key in MASTER_KEYS.items()},
        }
        return found if self.material is None else found | {"key_material": f"parquet/{self.name}.json"}

    def data(self) -> bytes:
        return _encrypted(self)


def _seal(key: bytes, plaintext: bytes, aad: bytes) -> str:
    nonce = hashlib.sha256(b"nonce" + aad).digest()[:12]
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, plaintext, aad)).decode()


def _material(master: str, key: bytes, is_double: bool = False, is_internal: bool = True) -> bytes:
    """Key metadata as the key tools store it in a file, with the wraps of the in-memory KMS of parquet-java's tests."""
    fields: Fields = {"keyMaterialType": "PKMT1", "internalStorage": is_internal, "isFooterKey": master == "kf"}
    if master == "kf":
        fields |= {"kmsInstanceID": "DEFAULT", "kmsInstanceURL": "DEFAULT"}
    fields |= {"masterKeyID": master, "doubleWrapping": is_double}
    if is_double:
        kek, kek_id = f"kek of {master}".encode().ljust(16), f"id of {master}".encode().ljust(16)
        fields |= {"keyEncryptionKeyID": base64.b64encode(kek_id).decode()}
        fields |= {
            "wrappedKEK": _seal(MASTER_KEYS[master], kek, master.encode()),
            "wrappedDEK": _seal(kek, key, kek_id),
        }
    else:
        fields["wrappedDEK"] = _seal(MASTER_KEYS[master], key, master.encode())
    return json.dumps(fields, separators=(",", ":")).encode()


def _encryption(footer_key: bytes = FOOTER_KEY, is_double: bool = False, seed: int = 0, **options: Any) -> Encryption:
    # Other nonces in each file: several have the same keys.
    text = repr((footer_key, is_double, seed, sorted(options.items())))
    material = _material("kf", footer_key, is_double)
    return Encryption(footer_key, footer_key_metadata=material, random=random.Random(text), **options)


def _columns(is_double: bool = False, **options: Any) -> Encryption:
    material = {name: _material(master, COLUMNS[name], is_double) for name, master in (("name", "kc1"), ("ssn", "kc2"))}
    return _encryption(is_double=is_double, column_keys=COLUMNS, column_key_metadata=material, **options)


def _external(name: str, comment: str, is_double: bool = False) -> Mode:
    """A file whose keys are wrapped in a key material file beside it."""
    given = {"footerKey": ("kf", FOOTER_KEY), "columnKey0": ("kc1", NAME_KEY), "columnKey1": ("kc2", SSN_KEY)}
    material = {each: _material(*pair, is_double, is_internal=False).decode() for each, pair in given.items()}
    refers = {
        each: json.dumps({"keyMaterialType": "PKMT1", "internalStorage": False, "keyReference": each}).encode()
        for each in given
    }
    encryption = Encryption(
        FOOTER_KEY,
        column_keys=COLUMNS,
        footer_key_metadata=refers["footerKey"],
        column_key_metadata={"name": refers["columnKey0"], "ssn": refers["columnKey1"]},
        random=random.Random(name),
    )
    return Mode(name, comment, encryption, material=material)


def _material_files(mode: Mode) -> Iterator[tuple[str, str, Fields | None]]:
    """Name, comment and content of the key material files with which a file must not open; None: there is none."""
    assert mode.material is not None
    column = json.loads(mode.material["columnKey1"])
    wrapped = bytearray(base64.b64decode(column["wrappedDEK"]))
    wrapped[-1] ^= 1
    changed = json.dumps({**column, "wrappedDEK": base64.b64encode(wrapped).decode()}, separators=(",", ":"))
    yield "changed", "one bit of a wrapped key in the key material file", {**mode.material, "columnKey1": changed}
    other = {"footerKey": ("kf", OTHER), "columnKey0": ("kc1", OTHER), "columnKey1": ("kc2", OTHER)}
    foreign = {each: _material(*pair, is_internal=False).decode() for each, pair in other.items()}
    yield "of-another-file", "the key material file of another file, under the same master keys", foreign
    swapped = {"columnKey0": mode.material["columnKey1"], "columnKey1": mode.material["columnKey0"]}
    yield "exchanged", "the keys of two columns changed places in the key material file", {**mode.material, **swapped}
    yield "missing", "there is no key material file", None


def _refuse_opening(material: Mapping[str, str] | None, mode: Mode) -> None:
    """End the run if key material gives the keys of a file."""
    wanted = {"footerKey": FOOTER_KEY, "columnKey0": NAME_KEY, "columnKey1": SSN_KEY}
    found = {}
    for name, text in (material or {}).items():
        fields = json.loads(text)
        wrapped, master = base64.b64decode(fields["wrappedDEK"]), fields["masterKeyID"]
        with contextlib.suppress(InvalidTag):
            found[name] = AESGCM(MASTER_KEYS[master]).decrypt(wrapped[:12], wrapped[12:], master.encode())
    if found == wanted:
        raise SystemExit(f"{mode.name}: its attacks leave the keys as they are")


def modes() -> Iterator[Mode]:
    """Every file."""
    yield Mode("gcm-uniform", "one key for everything, encrypted footer", _encryption())
    yield Mode("gcm-columns", "two columns with keys of their own, the others plaintext", _columns())
    yield Mode("gcm-columns-complete", "two columns with keys of their own, the others with the footer's",
               _columns(encrypt_all=True))  # fmt: skip
    yield Mode("gcm-plaintext-footer", "plaintext footer that is signed, two column keys",
               _columns(plaintext_footer=True))  # fmt: skip
    yield Mode("gcm-plaintext-footer-uniform", "plaintext footer that is signed, the footer's key for every column",
               _encryption(plaintext_footer=True))  # fmt: skip
    yield Mode("ctr-uniform", "pages by AES-CTR", _encryption(algorithm=CTR_PAGES))
    yield Mode("ctr-columns", "pages by AES-CTR, two column keys", _columns(algorithm=CTR_PAGES))
    yield Mode("ctr-plaintext-footer", "pages by AES-CTR, plaintext footer that is signed",
               _columns(algorithm=CTR_PAGES, plaintext_footer=True))  # fmt: skip
    yield Mode("prefix-stored", "an AAD prefix that the file holds", _columns(aad_prefix=PREFIX))
    yield Mode("prefix-supplied", "an AAD prefix that the reader is given, as in Iceberg's data files",
               _encryption(aad_prefix=PREFIX, store_aad_prefix=False))  # fmt: skip
    yield Mode("prefix-supplied-plaintext-footer", "the same with a plaintext footer",
               _columns(aad_prefix=PREFIX, store_aad_prefix=False, plaintext_footer=True))  # fmt: skip
    yield Mode("key-24", "a key of 24 bytes", _encryption(KEY_24))
    yield Mode("key-32", "a key of 32 bytes", _encryption(KEY_32, aad_file_unique=b"32 bytes"))
    yield Mode("file-unique-16", "an identity of 16 bytes, where writers take 8",
               _encryption(aad_file_unique=b"sixteen bytes :)"))  # fmt: skip
    yield Mode("v2-java-form", "V2 pages with levels in front of the module, as parquet-java writes them",
               _encryption(data_page_v2="java"), plain="v2")  # fmt: skip
    yield Mode("v2-arrow-form", "V2 pages with levels inside the module, as Arrow writes them",
               _encryption(data_page_v2="arrow"), plain="v2")  # fmt: skip
    yield Mode("padded", "zeros behind the structs in modules, as parquet-java leaves them",
               _columns(pad_thrift=True))  # fmt: skip
    yield Mode("no-ordinals", "row groups without ordinals", _encryption(write_ordinals=False))
    yield Mode("no-supply-field", "supply_aad_prefix is not set, as in files of arrow-rs",
               _encryption(omit_supply_aad_prefix=True))  # fmt: skip
    yield Mode("hidden-12-to-17", "a plaintext footer that hides fields 12 to 17, as that of arrow-rs",
               _columns(plaintext_footer=True, hidden_fields=(12, 13, 14, 15, 16, 17)))  # fmt: skip
    yield Mode("double-wrapped", "key metadata of key tools with double wrapping", _columns(is_double=True))
    yield _external("external-material", "the keys are wrapped in a key material file beside the file")
    yield _external("external-material-double", "the same with double wrapping", is_double=True)
    yield _another()


@cache
def _another() -> Mode:
    """A file of the same keys and lengths as gcm-columns: what is taken from it fits everything but the identity."""
    wanted = _layout(Mode("", "", _columns()))
    # CRCs differ, and with them the lengths of page headers.
    for seed in itertools.count():
        encryption = _columns(aad_file_unique=b"anotherf", seed=seed)
        mode = Mode("gcm-columns-another", "another file with the keys of gcm-columns", encryption)
        if _layout(mode) == wanted:
            return mode
    raise AssertionError


def _layout(mode: Mode) -> list[tuple[str, int, int]]:
    data = encrypt_reference(_plain(mode.plain), _again(mode.encryption))
    return [(module.kind, module.offset, module.length) for module in _opened(mode, data).modules]


@cache
def _plain(name: str) -> bytes:
    return (DIRECTORY / "parquet" / f"{name}.parquet").read_bytes()


@cache
def _made() -> dict[str, bytes]:
    return {}


def _encrypted(mode: Mode) -> bytes:
    made = _made()
    if mode.name not in made:
        made[mode.name] = encrypt_reference(_plain(mode.plain), _again(mode.encryption))
    return made[mode.name]


def _again(encryption: Encryption) -> Encryption:
    """The same with nonces from their start."""
    return copy.deepcopy(encryption)


def _opened(mode: Mode, data: bytes | None = None, **changed: Any) -> File:
    own = mode.encryption
    arguments: Fields = {
        "footer_key": own.footer_key,
        "column_keys": own.column_keys,
        "aad_prefix": own.aad_prefix if not own.store_aad_prefix else None,
    }
    arguments |= changed
    return open_encrypted(mode.data() if data is None else data, skip_missing=True, **arguments)


def _flip(at: int) -> Fields:
    return {"flip": at}


def apply(data: bytes, edits: list[Fields], other: Mapping[str, bytes]) -> bytes:
    """Return the data with a case's edits, which README.md describes; `other` has the files that it copies from."""
    changed = bytearray(data)
    for edit in edits:
        if "flip" in edit:
            changed[edit["flip"]] ^= 1
        elif "cut" in edit:
            del changed[edit["cut"] :]
        elif "append" in edit:
            changed += bytes.fromhex(edit["append"])
        elif "write" in edit:
            value = bytes.fromhex(edit["hex"])
            changed[edit["write"] : edit["write"] + len(value)] = value
        else:
            source = other[edit["file"]] if "file" in edit else data
            begin, length = edit["copy"], edit["length"]
            changed[edit["to"] : edit["to"] + length] = source[begin : begin + length]
    return bytes(changed)


@dataclass(frozen=True)
class Attack:
    """A file with changes, or with other keys, that a reader must refuse."""

    name: str
    comment: str
    threat: str
    mode: str
    edits: tuple[Fields, ...] = ()
    keys: Mapping[str, Any] | None = None
    # "rows" is refused by whoever reads rows; "indexes" by who reads page indexes, "bloom" by who reads Bloom filters.
    part: str = "rows"


def _flips(mode: Mode) -> Iterator[Attack]:
    opened = _opened(mode)
    ends: dict[str, int] = {}
    for module in opened.modules:
        if module.offset >= 0 and not module.is_ctr:
            ends.setdefault(module.kind, module.offset + module.length)
    if mode.encryption.plaintext_footer:
        # It lies inside the footer, which is encrypted as a whole in the other modes.
        sealed = next(chunk.chunk[9] for chunk in opened.chunks if 9 in chunk.chunk)
        ends["column metadata"] = mode.data().index(sealed) + len(sealed)
    for kind, end in ends.items():
        part = {"column index": "indexes", "offset index": "indexes"}.get(kind, "rows")
        part = "bloom" if kind.startswith("Bloom") else part
        name = f"{mode.name}-flip-{kind.lower().replace(' ', '-')}"
        edits = (_flip(end - 1),)
        yield Attack(name, f"one bit of the tag of a {kind} changed", "changed bytes", mode.name, edits, part=part)
    if mode.encryption.plaintext_footer:
        data = mode.data()
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        at = data.index(b"salary", footer)
        comment = "the name of a column in the plaintext footer changed"
        yield Attack(f"{mode.name}-changed-footer", comment, "changed bytes", mode.name, (_flip(at),))


def _moves(mode: Mode) -> Iterator[Attack]:
    """Authentic modules in wrong places."""
    opened = _opened(mode)
    pages = [module for module in opened.find_modules("data page") if module.column == 2]
    first, second = (module for module in pages if module.row_group == 0 and module.page in (0, 1))
    other_group = next(module for module in pages if module.row_group == 1 and module.page == 0)
    assert first.length == second.length == other_group.length
    for name, comment, source, target in (
        ("repeated-page", "the first page of a column stands in the place of the second too", first, second),
        ("page-of-another-row-group", "a page of the second row group stands in the first", other_group, first),
    ):
        edit = {"copy": source.offset, "length": source.length, "to": target.offset}
        yield Attack(f"{mode.name}-{name}", comment, "moved pages", mode.name, (edit,))
    swap = (
        {"copy": first.offset, "length": first.length, "to": second.offset},
        {"copy": second.offset, "length": second.length, "to": first.offset},
    )
    yield Attack(f"{mode.name}-swapped-pages", "two pages of a column changed places", "moved pages", mode.name, swap)


def _replays(mode: Mode, another: Mode) -> Iterator[Attack]:
    ours, theirs = _opened(mode), _opened(another)
    for kind in ("data page", "footer"):
        target, source = ours.find_modules(kind)[-1], theirs.find_modules(kind)[-1]
        assert (target.offset, target.length) == (source.offset, source.length)
        edit = {"file": another.file, "copy": source.offset, "length": source.length, "to": target.offset}
        comment = f"a {kind} of another file with the same keys"
        name = f"{mode.name}-{kind.replace(' ', '-')}-of-another-file"
        yield Attack(name, comment, "parts of another file", mode.name, (edit,))


def attacks(by_name: Mapping[str, Mode]) -> Iterator[Attack]:
    """Every attack."""
    for name in ("gcm-columns-complete", "gcm-plaintext-footer", "ctr-columns"):
        yield from _flips(by_name[name])
    yield from _moves(by_name["gcm-columns-complete"])
    yield from _replays(by_name["gcm-columns"], by_name["gcm-columns-another"])
    wrong: tuple[tuple[str, str, str, str, Fields], ...] = (
        ("wrong-footer-key", "another footer key", "the wrong key", "gcm-columns", {"footer_key": OTHER.hex()}),
        ("wrong-column-key", "another key for one column", "the wrong key", "gcm-columns",
         {"column_keys": {"name": OTHER.hex(), "ssn": SSN_KEY.hex()}}),
        ("wrong-footer-key-signature", "another footer key for a signed footer", "the wrong key",
         "gcm-plaintext-footer", {"footer_key": OTHER.hex()}),
        ("wrong-prefix", "another AAD prefix", "the wrong AAD prefix", "prefix-supplied",
         {"aad_prefix": b"warehouse/people".hex()[::-1]}),
        ("missing-prefix", "no AAD prefix, where one must be supplied", "the wrong AAD prefix", "prefix-supplied",
         {"aad_prefix": None}),
        ("contradicting-prefix", "another AAD prefix than the one in the file", "the wrong AAD prefix",
         "prefix-stored", {"aad_prefix": b"warehouse/others".hex()}),
        ("needless-prefix", "an AAD prefix for a file that has none", "the wrong AAD prefix", "gcm-uniform",
         {"aad_prefix": PREFIX.hex()}),
    )  # fmt: skip
    for name, comment, threat, mode, keys in wrong:
        yield Attack(name, comment, threat, mode, keys=keys)
    uniform = by_name["gcm-uniform"].data()
    yield Attack("cut-by-a-byte", "the last byte is missing", "a cut file", "gcm-uniform", ({"cut": len(uniform) - 1},))
    yield Attack(
        "cut-in-half", "the second half is missing", "a cut file", "gcm-uniform", ({"cut": len(uniform) // 2},)
    )
    yield Attack("appended-byte", "a byte more at the end", "an extended file", "gcm-uniform", ({"append": "00"},))
    # Field 1 of FileCryptoMetaData is a union whose first byte says which algorithm: 0x1c is GCM, 0x2c is GCM and CTR.
    begin = len(uniform) - 8 - int.from_bytes(uniform[-8:-4], "little")
    assert uniform[begin : begin + 2] == b"\x1c\x1c"
    yield Attack(
        "downgraded-to-ctr", "the name of the algorithm, which nothing authenticates, says AES_GCM_CTR_V1",
        "a weaker algorithm", "gcm-uniform", ({"write": begin + 1, "hex": "2c"},),
    )  # fmt: skip


def cases() -> tuple[list[Fields], dict[str, bytes]]:
    """Return every case, and every encrypted file by its path."""
    by_name = {mode.name: mode for mode in modes()}
    files = {mode.file: mode.data() for mode in by_name.values()}
    files |= {f"parquet/{each.name}.json": _json(each.material) for each in by_name.values() if each.material}
    found: list[Fields] = []
    for mode in by_name.values():
        opened = _opened(mode)
        fields: Fields = {"name": mode.name, "comment": mode.comment, "expect": "success", "file": mode.file}
        fields["sha256"] = hashlib.sha256(mode.data()).hexdigest()
        fields |= {"algorithm": opened.algorithm or GCM, "plaintext_footer": mode.encryption.plaintext_footer}
        fields |= {**mode.keys(), "rows": "parquet/rows.json"}
        found.append(fields)
    for attack in attacks(by_name):
        mode = by_name[attack.mode]
        changed = apply(mode.data(), list(attack.edits), files)
        keys = {**mode.keys(), **(attack.keys or {})}
        if attack.threat != "a weaker algorithm":  # which the reference takes, as it is told none
            _check_refused(attack, mode, changed, keys)
        fields = {"name": attack.name, "comment": attack.comment, "expect": "refused", "threat": attack.threat}
        fields |= {"part": attack.part, "file": mode.file, "edits": list(attack.edits)}
        fields["sha256"] = hashlib.sha256(changed).hexdigest()
        fields |= {"algorithm": mode.encryption.algorithm, "plaintext_footer": mode.encryption.plaintext_footer, **keys}
        found.append(fields)
    mode = by_name["external-material"]
    for name, comment, material in _material_files(mode):
        _refuse_opening(material, mode)
        fields = {"name": f"{mode.name}-{name}", "comment": comment, "expect": "refused"}
        fields |= {"threat": "changed key material", "file": mode.file}
        fields |= {"sha256": hashlib.sha256(mode.data()).hexdigest(), "algorithm": GCM, "plaintext_footer": False}
        fields |= {**mode.keys(), "key_material": None if material is None else f"parquet/{mode.name}-{name}.json"}
        if material is not None:
            files[fields["key_material"]] = _json(material)
        found.append(fields)
    return found, files


def _json(material: Mapping[str, str]) -> bytes:
    return json.dumps(material, indent=1).encode() + b"\n"


def _check_refused(attack: Attack, mode: Mode, data: bytes, keys: Fields) -> None:
    prefix = keys["aad_prefix"]
    try:
        open_encrypted(
            data,
            bytes.fromhex(keys["footer_key"]),
            {name: bytes.fromhex(key) for name, key in keys["column_keys"].items()},
            None if prefix is None else bytes.fromhex(prefix),
            skip_missing=True,
        )
    except (Refused, ValueError, IndexError):
        return
    raise SystemExit(f"{attack.name}: the reference accepts it")


if __name__ == "__main__":
    write_plain()
