"""The differences between a classic Spark session and one over Spark Connect."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_DESCRIPTION = "spark.job.description"


class Session:
    """A classic session, or one over Spark Connect."""

    def __init__(self, spark: Any) -> None:
        if not hasattr(spark, "range") or not hasattr(spark, "createDataFrame"):
            raise TypeError(f"spark must be a SparkSession, not {type(spark).__name__}")
        self.spark = spark
        # A session of Spark Connect has no SparkContext here.
        self._context = context = None if "connect" in type(spark).__module__ else spark.sparkContext
        is_default = getattr(context, "pythonExec", "") == "python3" and "PYSPARK_PYTHON" not in os.environ
        if context is not None and str(context.master).startswith("local") and is_default:
            # What PySpark takes may be another Python than this one, which has ags1.
            context.pythonExec = sys.executable

    def slots(self) -> int:
        """How many tasks the cluster runs at once, if that is known."""
        if self._context is not None:
            return max(1, int(self._context.defaultParallelism))
        from pyspark.sql import functions

        # The server knows it: the partitions of a range show the number.
        frame = self.spark.range(0, 100_000).select(functions.spark_partition_id().alias("partition"))
        return max(1, int(frame.agg(functions.max("partition")).collect()[0][0]) + 1)

    def inherited(self, work: Callable[[], T]) -> Callable[[], T]:
        """The work, for another thread, with the job group, the tags and the pool of this one."""
        from pyspark import inheritable_thread_target

        if self._context is not None and os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
            # Spark's threads are not those of Python: nothing of this one can be told from another's.
            return work
        found: Callable[[], T] = inheritable_thread_target(self.spark)(work)
        return found

    @contextmanager
    def tagged(self, tag: str, text: str) -> Iterator[None]:
        """Tag this thread's jobs, and describe them for Spark's UI; the caller's own group and tags stay."""
        context = self._context
        if context is None:
            self.spark.addTag(tag)
            try:
                yield
            finally:
                self.spark.removeTag(tag)
            return
        before = context.getLocalProperty(_DESCRIPTION)
        context.addJobTag(tag)
        context.setLocalProperty(_DESCRIPTION, text if before is None else f"{before}: {text}")
        try:
            yield
        finally:
            context.removeJobTag(tag)
            context.setLocalProperty(_DESCRIPTION, before)

    def cancel(self, tag: str) -> None:
        """Stop the jobs that have a tag."""
        try:
            if self._context is not None:
                self._context.cancelJobsWithTag(tag)
            else:
                self.spark.interruptTag(tag)
        except Exception:
            # The session itself failed: nothing is running.
            return

    def done_tasks(self, tag: str) -> int | None:
        """Number of finished tasks of the jobs that have a tag, None if it is not known."""
        if self._context is None:
            return None
        tracker = self._context.statusTracker()
        # PySpark's own tracker finds jobs by their group only.
        jobs = self._context._jsc.sc().statusTracker().getJobIdsForTag(tag)
        done = 0
        for job in jobs:
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                found = tracker.getStageInfo(stage)
                done += found.numCompletedTasks if found is not None else 0
        return done
