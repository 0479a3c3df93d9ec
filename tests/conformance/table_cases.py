"""The cases of whole tables: those that ``make_tables.py`` made, and attacks on them as changes of files."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.loader import DIRECTORY
from tests.conformance.make_tables import LOCATION, SPARK_TABLES, TABLES
from tests.interop import jvm

Fields = dict[str, Any]
# Of a small Parquet file of Spark's; in the middle of it there is a page index, which a reader may leave out.
_IN_A_PAGE = 60


def described(name: str) -> Fields:
    """What ``make_tables.py`` says of a table."""
    found: Fields = json.loads((DIRECTORY / "tables" / f"{name}.json").read_text())
    return found


def _metadata(table: Fields, name: str) -> Fields:
    found: Fields = json.loads((DIRECTORY / "tables" / name / table["metadata"]).read_text())
    return found


def _changed_entry(entry: Fields, **changes: Any) -> Fields:
    """An edit of an entry of ``encryption-keys``."""
    old, new = (json.dumps(each, separators=(",", ":")) for each in (entry, {**entry, **changes}))
    return {"replace": [old, new]}


def _attacks() -> Iterator[tuple[str, str, str, list[Fields], Fields]]:
    """Name, comment, threat, edits and changed fields of each attack on the table "appended" or "deleted"."""
    table = described("appended")
    files, metadata = table["files"], table["metadata"]
    last_list, first_list = files["manifest list"][-1], files["manifest list"][0]
    manifest, data = files["manifest"], files["data"]
    for kind, path in (("manifest-list", last_list), ("manifest", manifest[-1]), ("data-file", data[-1])):
        size = (DIRECTORY / "tables" / "appended" / path).stat().st_size
        what = kind.replace("-", " ")
        yield f"{kind}-changed", f"one bit of a {what}", "changed bytes", [{"file": path, "flip": size // 2}], {}
        yield f"{kind}-cut", f"a {what} that lost its end", "a cut file", [{"file": path, "cut": size - 20}], {}
        yield f"{kind}-missing", f"a {what} is gone", "a missing file", [{"file": path, "remove": True}], {}
    yield ("manifest-lists-exchanged", "the manifest list of an older snapshot in place of the newest one's",
           "files of other places", [{"file": last_list, "copy": first_list}], {})  # fmt: skip
    yield ("manifests-exchanged", "a manifest in place of another one of the table",
           "files of other places", [{"file": manifest[0], "copy": manifest[1]}], {})  # fmt: skip
    yield ("data-files-exchanged", "a data file in place of another one of the table",
           "files of other places", [{"file": data[0], "copy": data[1]}], {})  # fmt: skip
    yield ("manifest-list-plaintext", "a plaintext Avro file in place of the newest manifest list",
           "plaintext in place of ciphertext", [{"file": last_list, "copy": "../plain/manifest-list.avro"}],
           {})  # fmt: skip
    yield ("data-file-plaintext", "a plaintext Parquet file in place of a data file",
           "plaintext in place of ciphertext", [{"file": data[0], "copy": "../plain/data.parquet"}], {})  # fmt: skip
    keys = _metadata(table, "appended")["encryption-keys"]
    kek = next(entry for entry in keys if "properties" in entry)
    stamp = str(int(kek["properties"]["KEY_TIMESTAMP"]) + 1)
    yield ("kek-timestamp-changed", "the timestamp of the key encryption key is a millisecond later",
           "changed key entries", [{"file": metadata, **_changed_entry(kek, properties={"KEY_TIMESTAMP": stamp})}],
           {})  # fmt: skip
    wrapped = bytearray(base64.b64decode(kek["encrypted-key-metadata"]))
    wrapped[-1] ^= 1
    text = base64.b64encode(wrapped).decode()
    yield ("kek-changed", "one bit of the wrapped key encryption key", "changed key entries",
           [{"file": metadata, **_changed_entry(kek, **{"encrypted-key-metadata": text})}], {})  # fmt: skip
    lists = [entry for entry in keys if "properties" not in entry]
    newest = _metadata(table, "appended")["snapshots"][-1]["key-id"]
    own = next(entry for entry in lists if entry["key-id"] == newest)
    other = next(entry for entry in lists if entry["key-id"] != newest)
    moved = {"encrypted-key-metadata": other["encrypted-key-metadata"]}
    yield ("list-keys-exchanged", "the key of an older manifest list in place of the newest one's",
           "changed key entries", [{"file": metadata, **_changed_entry(own, **moved)}], {})  # fmt: skip
    wrong = {each: bytes(range(16)).hex() for each in table["master_keys"]}
    yield "wrong-master-key", "another master key", "the wrong key", [], {"master_keys": wrong}


def cases() -> list[Fields]:
    """Return every case."""
    found = [_case(name, described(name), {"expect": "success"}, []) for name in (*TABLES, *SPARK_TABLES)]
    for name, comment, threat, edits, changed in _attacks():
        head = {"expect": "refused", "threat": threat}
        found.append(_case(name, {**described("appended"), "comment": comment, **changed}, head, edits, "appended"))
    deleted = described("deleted")
    path = deleted["files"]["deletion vectors"][0]
    vector = (DIRECTORY / "tables" / "deleted" / path).read_bytes()
    for name, comment, threat, edit in (
        ("deletion-vector-changed", "one bit of a deletion vector", "changed bytes", {"flip": len(vector) // 2}),
        ("deletion-vector-missing", "the deletion vectors are gone", "a missing file", {"remove": True}),
    ):
        head = {"expect": "refused", "threat": threat}
        found.append(_case(name, {**deleted, "comment": comment}, head, [{"file": path, **edit}], "deleted"))
    for folder in SPARK_TABLES:
        table = described(folder)
        for name, comment, threat, edits in _attacks_on_deletes(folder, table["files"]):
            head = {"expect": "refused", "threat": threat}
            found.append(_case(f"{folder}-{name}", {**table, "comment": comment}, head, edits, folder))
    return found


def _attacks_on_deletes(folder: str, files: Fields) -> Iterator[tuple[str, str, str, list[Fields]]]:
    """Name, comment, threat and edits of each attack on a table of Spark's, with its delete files."""
    place = DIRECTORY / "tables" / folder
    for kind, what in (("position deletes", "position delete file"), ("equality deletes", "equality delete file")):
        name, path = what.replace(" ", "-"), files[kind][0]
        yield f"{name}-changed", f"one bit of a {what}", "changed bytes", [{"file": path, "flip": _IN_A_PAGE}]
        yield f"{name}-missing", f"a {what} is gone", "a missing file", [{"file": path, "remove": True}]
    first, second = files["equality deletes"]
    yield ("equality-delete-files-exchanged", "an equality delete file in place of another one",
           "files of other places", [{"file": first, "copy": second}])  # fmt: skip
    yield ("data-file-as-deletes", "a data file in place of an equality delete file", "files of other places",
           [{"file": first, "copy": files["data"][0]}])  # fmt: skip
    data = files["data"]
    size = (place / data[0]).stat().st_size
    yield "data-file-changed", "one bit of a data file", "changed bytes", [{"file": data[0], "flip": _IN_A_PAGE}]
    yield "data-file-cut", "a data file that lost its end", "a cut file", [{"file": data[0], "cut": size - 20}]
    yield ("data-files-exchanged", "a data file in place of another one of the table", "files of other places",
           [{"file": data[0], "copy": data[1]}])  # fmt: skip


def _case(name: str, table: Fields, head: Fields, edits: list[Fields], folder: str | None = None) -> Fields:
    fields: Fields = {"name": name, "comment": table["comment"], **head, "table": folder or name}
    fields |= {each: table[each] for each in ("location", "metadata", "master_keys")}
    if edits:
        fields["edits"] = edits
    if head["expect"] == "success":
        fields["rows"] = f"tables/{name}.json"
        fields["sha256"] = hashlib.sha256((DIRECTORY / "tables" / name / table["metadata"]).read_bytes()).hexdigest()
    return fields


def edited(data: bytes, edit: Fields, folder: Path) -> bytes:
    """Return the content of a file after an edit, which README.md describes."""
    if "flip" in edit:
        changed = bytearray(data)
        changed[edit["flip"]] ^= 1
        return bytes(changed)
    if "cut" in edit:
        return data[: edit["cut"]]
    if "copy" in edit:
        return (folder / edit["copy"]).read_bytes()
    old, new = (each.encode() for each in edit["replace"])
    if data.count(old) != 1:
        raise ValueError(f"the text to replace is {data.count(old)} times in the file")
    return data.replace(old, new)


class Placed:
    """The table of a case at the location where it was made; a context manager, since there is one such place."""

    def __init__(self, case: Fields) -> None:
        self.case = case
        self._lock = jvm.alone(LOCATION)

    def __enter__(self) -> Path:
        """Return the path of the metadata file."""
        self._lock.__enter__()
        stored, place = DIRECTORY / "tables" / self.case["table"], LOCATION / self.case["table"]
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(stored, place)
        for edit in self.case.get("edits", ()):
            target = place / edit["file"]
            if edit.get("remove"):
                target.unlink()
            else:
                target.write_bytes(edited(target.read_bytes(), edit, stored))
        return place / self.case["metadata"]

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(LOCATION / self.case["table"], ignore_errors=True)
        self._lock.__exit__(None, None, None)
