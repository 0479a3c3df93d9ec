"""Attacks on the records of runs, the same for every room that has some: datasets, Iceberg tables, tasks of Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWNER, OTHER_OWNER = "0b0e1f6e-0000-4000-8000-000000000001", "0b0e1f6e-0000-4000-8000-000000000002"
MASTER, OTHER_MASTER = "lake", "tenant"
"""The reader may use both master keys. The attacker has the second."""

Believed = set[tuple[str, str]]
"""Pairs of a run and a file that it says it made."""


@dataclass(frozen=True)
class Room:
    """How a room writes and reads runs of a tree; they are in the directory `below` of it.

    ``write(directory, owner, key_id, files)`` writes a run with one record a file and returns its id;
    ``read(directory, owner, key_id)`` returns what a later run believes; it raises for nothing that an attacker wrote.
    """

    name: str
    below: str
    write: Callable[[Path, str, str, list[str]], str]
    read: Callable[[Path, str, str], Believed]


def attack(room: Room, place: Path) -> int:
    """Make every attack on the room, each on fresh copies; return how many there were."""
    genuine: Believed = set()
    for files in (["one", "two"], ["three"]):
        run = room.write(place / "genuine", OWNER, MASTER, files)
        genuine |= {(run, each) for each in files}
    foreign = {
        room.write(place / "foreign", owner, key_id, ["evil"]): (owner, key_id)
        for owner, key_id in ((OTHER_OWNER, MASTER), (OWNER, OTHER_MASTER), (OTHER_OWNER, OTHER_MASTER))
    }
    assert room.read(place / "genuine", OWNER, MASTER) == genuine, "what nobody attacked is believed"
    assert not room.read(place / "foreign", OWNER, MASTER)
    for run, (owner, key_id) in foreign.items():
        assert room.read(place / "foreign", owner, key_id) == {(run, "evil")}, "it would be good elsewhere"
    count = 0
    for name, act, lost in _attacks(place / "genuine" / room.below, place / "foreign" / room.below):
        trial = Path(shutil.copytree(place / "genuine", place / "trial"))
        act(trial / room.below)
        believed = room.read(trial, OWNER, MASTER)
        assert believed <= genuine, f"{room.name}, {name}: {believed - genuine}"
        assert not lost or believed < genuine, f"{room.name}, {name}: nothing noticed it"
        shutil.rmtree(trial)
        count += 1
    return count


Attack = tuple[str, Callable[[Path], object], bool]


def _attacks(genuine: Path, foreign: Path) -> Iterator[Attack]:
    """Name of each attack, what does it to a copy, and whether something genuine cannot be believed after it."""
    first, second = sorted(genuine.iterdir())
    names = sorted(path.name for path in first.iterdir())
    for run in (first, second):
        for path in sorted(run.iterdir()):
            yield from _mutations(path, path.relative_to(genuine))
    records = [each for each in names if each.endswith(".sealed")]
    for one in names:
        for other in {*names, *(each.name for each in second.iterdir())} - {one}:
            # Of the same run under another name, and of another run of the same owner under the same name.
            for source in (first / other, second / other):
                if source.exists() and source.name != one:
                    yield f"{other} as {one}", _copy(source, f"{first.name}/{one}"), True
    yield "a whole run under another id", lambda trial: shutil.copytree(trial / first.name, trial / ("0" * 12)), False
    yield "another run's run.json", _copy(second / "run.json", f"{first.name}/run.json"), True
    for name in records:
        yield "a record in another run", _copy(first / name, f"{second.name}/extra-{name}"), False
        yield "a record in another run", _copy(first / name, f"{second.name}/{name}"), False
    for each in sorted(foreign.iterdir()):
        yield "a foreign run", lambda trial, of=each: shutil.copytree(of, trial / of.name), False
        yield "a foreign run in its place", lambda trial, of=each: _replace(trial / first.name, of), True
        for path in sorted(each.iterdir()):
            yield "an object of a foreign run", _copy(path, f"{first.name}/{path.name}"), path.name == "run.json"
        for owner in (OWNER, OTHER_OWNER):
            yield "a foreign run that says who owns it", lambda t, o=owner, f=each: _renamed(t, f, o), False
    for text, lost in _run_files(first):
        yield f"run.json is {text}", _write(f"{first.name}/run.json", text), lost
    yield "a new run.json without a key", _write("123456789abc/run.json", next(_run_files(first))[0]), False


def _mutations(path: Path, inside: Path) -> Iterator[Attack]:
    data = path.read_bytes()
    for offset in {*range(0, len(data), max(1, len(data) // 16)), len(data) - 1}:
        changed = data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]
        # Of run.json, white space and the way to the key may be changed: the key itself may not.
        yield f"bit {offset} of {inside}", _write(str(inside), changed), inside.name != "run.json"
    for cut in (0, 12, 27, len(data) // 2, len(data) - 1):
        yield (
            f"{cut} bytes of {inside}",
            _write(str(inside), data[:cut]),
            inside.name != "run.json" or cut < len(data) - 1,
        )
    yield f"more of {inside}", _write(str(inside), data + b"x"), True
    yield f"no {inside}", lambda trial: (trial / inside).unlink(), True


def _run_files(run: Path) -> Iterator[tuple[str, bool]]:
    """What somebody without a key may write as run.json, and whether it must be noticed."""
    true = json.loads((run / "run.json").read_text())
    # Of earlier formats.
    yield '{"version": 1, "purpose": {}}', True
    yield json.dumps({"format-version": 2, "run": run.name, "base-version": 1, "default": "00000000"}), True
    for text in ("", "{}", "[", "[" * 10_000, "null", "\ud83d\ude00"):
        yield text, True
    for name in true:
        for value in (None, 1, {}, {"key-id": MASTER}, OWNER[::-1]):
            yield json.dumps({**true, name: value}), True
        yield json.dumps({key: value for key, value in true.items() if key != name}), True
    for name in true["key"]:
        for value in (None, "", [], [{}], OTHER_MASTER):
            # The way to the key may be another one, as long as it leads to the same key.
            yield json.dumps({**true, "key": {**true["key"], name: value}}), False


def _copy(source: Path, target: str) -> Callable[[Path], Any]:
    return lambda trial: shutil.copyfile(source, trial / target)


def _write(name: str, data: bytes | str) -> Callable[[Path], Any]:
    octets = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data

    def act(trial: Path) -> None:
        (trial / name).parent.mkdir(exist_ok=True)
        (trial / name).write_bytes(octets)

    return act


def _replace(run: Path, by: Path) -> None:
    shutil.rmtree(run)
    shutil.copytree(by, run)


def _renamed(trial: Path, foreign: Path, owner: str) -> None:
    made = Path(shutil.copytree(foreign, trial / foreign.name))
    fields = json.loads((made / "run.json").read_text())
    fields["owner"] = owner
    if "key-id" in fields["key"]:
        fields["key"]["key-id"] = MASTER
    (made / "run.json").write_text(json.dumps(fields))
