"""ags1.bench: a type checker accepts every line but those marked as refused."""

from typing import Any

from ags1 import bench


def compare() -> None:
    found: bench.Comparison = bench.compare(lambda: None, lambda: None, seconds=1.0)
    bench.compare(found, lambda: None)  # refused


def codecs() -> None:
    known: list[bench.Codec] = bench.codecs()
    bench.codecs(known)  # refused


def register(codec: bench.Codec) -> None:
    same: bench.Codec = bench.register(codec)
    bench.register("codec")  # refused
    _wrong: str = same  # refused


def machine() -> None:
    found: dict[str, Any] = bench.machine()
    bench.machine(found)  # refused


def load_average() -> None:
    load: float = bench.load_average()
    bench.load_average(load)  # refused


def spread() -> None:
    width: float = bench.spread([1.0, 2.0])
    bench.spread(width)  # refused


def ratio_of_medians() -> None:
    ratio: bench.Ratio = bench.ratio_of_medians([1.0], [2.0])
    bench.ratio_of_medians(ratio, [2.0])  # refused


def difference_of_medians() -> None:
    ratio: bench.Ratio = bench.difference_of_medians([1.0], [2.0])
    bench.difference_of_medians(ratio, [2.0])  # refused


def verdict(ratio: bench.Ratio) -> None:
    bench.verdict(ratio, threshold=0.1)
    bench.verdict(1.5)  # refused


def read() -> None:
    entries: list[bench.HistoryEntry] = bench.read("history.jsonl")
    bench.read(entries)  # refused


def append(entries: list[bench.HistoryEntry]) -> None:
    bench.append("history.jsonl", entries)
    bench.append("history.jsonl", 5)  # refused


def commit_of() -> None:
    commit: str = bench.commit_of(".")
    bench.commit_of(5)  # refused
    _wrong: int = commit  # refused


def differences() -> None:
    found: list[str] = bench.differences({}, {})
    bench.differences(found, {})  # refused


def require_same() -> None:
    bench.require_same({}, {}, what="it")
    bench.require_same({}, 5)  # refused


def entry() -> None:
    made: bench.HistoryEntry = bench.entry("figure", 1.0, 0.9, 1.1, {"mine": [1.0]})
    bench.entry("figure", "1.0", 0.9, 1.1, {})  # refused
    _wrong: str = made  # refused


def interleave(subject: bench.Subject) -> None:
    run: bench.Run = bench.interleave({"mine": subject}, seconds=1.0)
    bench.interleave({"mine": subject}, seconds=run)  # refused


def decide() -> None:
    bench.decide(lambda seconds, rounds: bench.Run, seconds=1.0, limit=2.0)  # refused
    bench.decide("measure", seconds=1.0, limit=2.0)  # refused


def codec_questions(codec: bench.Codec) -> None:
    bench.codec_questions(codec)
    bench.codec_questions("codec")  # refused
