"""Benchmarks that compare: two subjects take turns, and a ratio with an interval says what they took.

>>> from ags1 import bench
>>> found = bench.compare(lambda: sorted(range(2000)), lambda: sorted(range(2000)), seconds=0.1)
>>> found.verdict in ("same", "faster", "slower", "undecided")
True

A machine changes its speed by the minute. So nothing is timed alone: in each round every subject runs once, each round
in the opposite order of the one before, and what counts is the ratio of the medians over the same rounds.

- `compare` times a subject beside a floor or a peer, until the interval is narrow or the time is up.
- `verdict` says what an interval means. An interval that holds both "no change" and "slower by the threshold" is
  "undecided", never "same".
- `machine` names what a figure was measured on; `append` and `read` keep figures as JSON lines.
- `Codec` is an encryption function of anybody's, and `codec_questions` asks it everything that ags1 is asked.
- The fixture ``paired`` of pytest does all that in one line of a test: ``paired(mine, floor, at_least=0.9)``.

Nothing here is thread-safe: to measure is to have the machine for oneself.
"""

from __future__ import annotations

from ags1.support.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.bench._codecs import AGS1, Codec, CodecError, Question, codec_questions, codecs, register
    from ags1.bench._history import HistoryEntry, append, commit_of, entry, read
    from ags1.bench._machine import IDENTITY, OtherMachineError, differences, load_average, machine, require_same
    from ags1.bench._ratios import Ratio, difference_of_medians, ratio_of_medians, spread, verdict
    from ags1.bench._rounds import Comparison, Run, Subject, UndecidedWarning, compare, decide, interleave

__all__ = [
    "AGS1",
    "IDENTITY",
    "Codec",
    "CodecError",
    "Comparison",
    "HistoryEntry",
    "OtherMachineError",
    "Question",
    "Ratio",
    "Run",
    "Subject",
    "UndecidedWarning",
    "append",
    "codec_questions",
    "codecs",
    "commit_of",
    "compare",
    "decide",
    "difference_of_medians",
    "differences",
    "entry",
    "interleave",
    "load_average",
    "machine",
    "ratio_of_medians",
    "read",
    "register",
    "require_same",
    "spread",
    "verdict",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_codecs": ("AGS1", "Codec", "CodecError", "Question", "codec_questions", "codecs", "register"),
        "_history": ("HistoryEntry", "append", "commit_of", "entry", "read"),
        "_machine": ("IDENTITY", "OtherMachineError", "differences", "load_average", "machine", "require_same"),
        "_ratios": ("Ratio", "difference_of_medians", "ratio_of_medians", "spread", "verdict"),
        "_rounds": ("Comparison", "Run", "Subject", "UndecidedWarning", "compare", "decide", "interleave"),
    },
)
