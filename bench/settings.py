"""How large and how long the benchmarks are: from the environment, so that any runner can say."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Settings:
    """Sizes and times of a run.

    Attributes
    ----------
    nbytes
        Plaintext in memory (``AGS1_BENCH_BYTES``).
    file_bytes
        Plaintext of a file (``AGS1_BENCH_FILE_BYTES``, else as `nbytes`).
    seconds
        Time that one question may take, its warm-up included and what it prepares excluded (``AGS1_BENCH_SECONDS``).
    min_rounds
        Rounds of a question, however long they take.
    directory
        Where files are made (``AGS1_BENCH_DIR``, else the system's temporary directory).
    quick
        ``AGS1_BENCH_QUICK``: small sizes and few rounds, to see that everything runs. Its figures prove nothing: small
        data stays in the cache, and start-up weighs more than work.
    """

    nbytes: int
    file_bytes: int
    seconds: float
    min_rounds: int
    directory: Path | None
    quick: bool

    @property
    def threads(self) -> tuple[int, ...]:
        """1, 2 and all CPUs that this process may use, each once and no more than there are."""
        return tuple(sorted({1, min(2, cpus()), cpus()}))

    @property
    def batch_count(self) -> int:
        """Buffers in a batch: one for each kibibyte."""
        return max(1000, self.nbytes // 1024)

    @property
    def large_file_bytes(self) -> int:
        """Plaintext of a file beside which the start of a program is short: a gibibyte in a full run."""
        return self.file_bytes if self.quick else 4 * self.file_bytes


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> Settings:
    """Read the environment."""
    quick = os.environ.get("AGS1_BENCH_QUICK", "") not in ("", "0")
    nbytes = int(os.environ.get("AGS1_BENCH_BYTES") or (32 * MIB if quick else 256 * MIB))
    directory = os.environ.get("AGS1_BENCH_DIR")
    return Settings(
        nbytes=nbytes,
        file_bytes=int(os.environ.get("AGS1_BENCH_FILE_BYTES") or nbytes),
        seconds=float(os.environ.get("AGS1_BENCH_SECONDS") or (0.5 if quick else 6)),
        min_rounds=3,
        directory=Path(directory) if directory else None,
        quick=quick,
    )
