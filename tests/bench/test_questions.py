"""The questions of the suite: each can be answered, and each public function with a floor has one that notices it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from bench import questions
from tests.checks import every

NEEDS = {"arrow": "pyarrow", "parquet": "pyarrow", "iceberg": "pyiceberg"}
BYTES = 1 << 18


class Clock:
    """Time that passes only where it is injected."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def _kind(arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """In what form a batch came."""
    if options.get("out") is not None:
        return "out"
    if isinstance(arguments[0], tuple):
        return "offsets"
    return "list" if isinstance(arguments[0], list) else "arrow"


# Each path that can get slower by itself: module, name, and the questions that must notice. One question is enough.
INJECTED = {
    **{
        f"{name} of a batch as {form}": ("ags1", name, form, [f"{name}-1KiB-{form}"])
        for name in ("encrypt_many", "decrypt_many")
        for form in ("list", "arrow", "offsets", "out")
    },
    **{
        name: ("ags1", name, None, asked)
        for name, asked in {
            "encrypt_into": ["encrypt_into-4KiB-1"],
            "decrypt_into": ["decrypt_into-4KiB-1"],
            "encrypt": ["encrypt", "encrypt-256B-each"],
            "decrypt": ["decrypt", "decrypt-256B-each"],
            "encrypt_file": ["encrypt_file"],
            "decrypt_file": ["decrypt_file"],
            "verify_file": ["verify_file"],
            "open": ["write-64KiB-file"],
        }.items()
    },
    **{
        f"Reader.{name}": ("ags1.streams.stream", f"Reader.{name}", None, asked)
        for name, asked in {
            "pread": ["pread-4KiB"],
            "pread_into": ["pread_into-4KiB"],
            "read": ["read-64KiB", "read-64KiB-file"],
            "readinto": ["readinto-8MiB-file"],
        }.items()
    },
    "Writer.write": ("ags1.streams.stream", "Writer.write", None, ["write-64KiB-file"]),
    **{
        f"arrow.{name}": ("ags1.arrow", name, None, [f"arrow-{name}"])
        for name in (
            *(f"{verb}_{what}" for what in ("array", "columns", "buffers", "table") for verb in ("encrypt", "decrypt")),
            "write_ipc_file",
        )
    },
    "arrow.open_ipc_file": ("ags1.arrow", "open_ipc_file", None, ["arrow-read_ipc_file"]),
    **{
        f"parquet.{name}": ("ags1.parquet", name, None, [f"parquet-{asked}"])
        for name, asked in {
            "encrypt_file": "encrypt_file",
            "decrypt_file": "decrypt_file",
            "rekey_file": "rekey_file",
            "verify_file": "verify_file",
            "open": "view",
        }.items()
    },
    "dataset.encrypt": ("ags1.dataset", "encrypt", None, ["dataset-encrypt"]),
    "dataset.open": ("ags1.dataset", "open", None, ["dataset-read", "dataset-verify", "dataset-decrypt"]),
    **{
        f"Dataset.{name}": ("ags1.dataset", f"Dataset.{name}", None, [f"dataset-{asked}"])
        for name, asked in {"decrypt": "decrypt", "verify": "verify", "rewrap": "rewrap", "open": "read"}.items()
    },
    **{
        f"iceberg.{name}": ("ags1.iceberg", name, None, [f"iceberg-{name}"])
        for name in ("encrypt_table", "rekey_table")
    },
    "iceberg.load_table": ("ags1.iceberg", "load_table", None, ["iceberg-plan"]),
    **{
        f"EncryptedTable.{name}": ("ags1.iceberg", f"EncryptedTable.{name}", None, [f"iceberg-{name}"])
        for name in ("scan", "append", "verify")
    },
}


def _available(question: str) -> bool:
    group = next(name for name, found in questions.GROUPS.items() if question in found)
    return group not in NEEDS or importlib.util.find_spec(NEEDS[group]) is not None


def _seconds(question: str, directory: Path) -> Callable[[], float]:
    directory.mkdir()
    return questions.QUESTIONS[question](questions.Workplace(BYTES, directory)).seconds


@pytest.mark.parametrize("group", questions.GROUPS)
def test_every_question_of_a_group_can_be_answered(group: str, tmp_path: Path) -> None:
    if group in NEEDS:
        pytest.importorskip(NEEDS[group])
    for number, question in enumerate(questions.GROUPS[group]):
        assert _seconds(question, tmp_path / str(number))() > 0, question


@every("path", INJECTED)
def test_a_delay_in_any_public_function_is_noticed(
    path: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, form, asked = INJECTED[path]
    if not all(_available(question) for question in asked):
        return
    target: Any = importlib.import_module(module)
    *owners, last = name.split(".")
    for owner in owners:
        target = getattr(target, owner)
    plain, clock = getattr(target, last), Clock()

    def delayed(*arguments: Any, **options: Any) -> Any:
        if form is None or _kind(arguments, options) == form:
            clock.now += 1.0
        return plain(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(questions.time, "perf_counter", clock.perf_counter)
        patch.setattr(target, last, delayed)
        for question in asked:
            seconds = _seconds(question, tmp_path_factory.mktemp("delay") / "place")()
            assert seconds >= 1.0, f"{question} does not notice a delay in {path}"


def test_every_public_function_that_takes_time_is_delayed_somewhere() -> None:
    """The public functions without a question are named here, each with why."""
    without = {
        "encrypted_length", "plaintext_length", "split_offsets", "backend", "get_include",  # arithmetic, or asked once
    }  # fmt: skip
    functions = {name for name in ags1.__all__ if inspect.isroutine(getattr(ags1, name))}
    assert functions - without <= {path.split(" ")[0] for path in INJECTED}
    arrow = pytest.importorskip("ags1.arrow")
    # Of the stream forms, the file forms are asked: one is the other with an index behind it.
    streams = {"open_ipc_stream", "write_ipc_stream"}
    functions = {name for name in arrow.__all__ if inspect.isfunction(getattr(arrow, name))} - streams
    assert functions <= {path.removeprefix("arrow.") for path in INJECTED}


def test_memory_is_measured_too(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory is read from Linux's /proc")
    size = 48 << 20
    much = questions.Prepared(lambda: bytearray(b"\x01") * size).memory()
    # Linux counts pages in bulk.
    assert size - (2 << 20) <= much < 2 * size
    assert questions.Prepared(lambda: None).memory() < 2 << 20


def test_the_guard_against_unknown_groups_is_not_idle() -> None:
    names = [name for group in questions.GROUPS.values() for name in group]
    assert len(names) == len(set(names)) == len(questions.QUESTIONS)
    assert all(re.fullmatch(r"[\w-]+", name) for name in names)
