"""Workers in threads of this process: units in, outcomes out, in order."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing

from ags1.dataset.worker import FileOutcome, Worker, batches, is_fatal
from ags1.support.arguments import one_of
from ags1.support.typing import Any

# A larger file gets all threads, after earlier units end: otherwise one thread would work alone on the last file.
_LARGE = 32 << 20
_WAITING = 4


def execute(
    worker: Worker, units: Iterable[Any], *, threads: int | None = None, on_error: str = "fail"
) -> Generator[FileOutcome, None, None]:
    """Run a worker over units in threads, by default one for each usable CPU; with 1, no thread is started.

    Units are taken on the calling thread, a bounded number ahead of the outcomes, which come in the same order. With
    ``on_error="fail"`` the first failure is raised. With "collect" a failure is an outcome, unless every other unit
    would fail as well (a full disk, a KMS that refuses all calls). After an error, or when the iterator is closed, no
    unit is started, and the running ones are waited for.
    """
    one_of(on_error, ("fail", "collect"), "on_error")
    if threads is None:
        from ags1.core.backend import backend

        threads = int(backend()["threads"])
    for outcome in _run(worker, units, threads):
        if outcome.error is not None and (on_error == "fail" or is_fatal(outcome.error)):
            raise outcome.error
        yield outcome


def _run(worker: Worker, units: Iterable[Any], threads: int) -> Iterator[FileOutcome]:
    if threads <= 1:
        for batch in batches(units, worker.size_of):
            yield from worker.work(batch)
        return
    from ags1.support.parallel import in_parallel

    quiet, whole = worker.using(1, quiet=True), worker.using(threads)

    def is_large(batch: list[Any]) -> bool:
        return worker.size_of(batch[0]) > _LARGE

    def work(batch: list[Any]) -> list[FileOutcome]:
        return (whole if is_large(batch) else quiet).work(batch)

    done = in_parallel(work, batches(units, worker.size_of), threads, ahead=_WAITING, alone=is_large)
    with closing(done):
        for outcomes in done:
            yield from outcomes
