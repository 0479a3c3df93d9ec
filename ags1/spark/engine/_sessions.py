"""The differences between a classic Spark session and one over Spark Connect."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def is_connect(spark: Any) -> bool:
    """Whether a session is one of Spark Connect, which has no SparkContext here."""
    return "connect" in type(spark).__module__


class Session:
    def __init__(self, spark: Any) -> None:
        if not hasattr(spark, "range") or not hasattr(spark, "createDataFrame"):
            raise TypeError(f"spark must be a SparkSession, not {type(spark).__name__}")
        self.spark = spark
        self._context = context = None if is_connect(spark) else spark.sparkContext
        is_default = getattr(context, "pythonExec", "") == "python3" and "PYSPARK_PYTHON" not in os.environ
        if context is not None and self.is_local and is_default:
            # What PySpark takes may be another Python than this one, which has ags1.
            context.pythonExec = sys.executable

    @property
    def is_local(self) -> bool:
        """Whether workers run on this machine, and see its files."""
        return self._context is not None and str(self._context.master).startswith("local")

    def setting(self, name: str) -> str | None:
        try:
            value: str | None = self.spark.conf.get(name, None)
        except Exception:
            # Some platforms refuse to show some settings.
            return None
        return value

    def slots(self) -> int:
        """How many tasks the cluster runs at once, if that is known."""
        if self._context is not None:
            return max(1, int(self._context.defaultParallelism))
        from pyspark.sql import functions

        # The server knows it: the partitions of a range show the number.
        frame = self.spark.range(0, 100_000).select(functions.spark_partition_id().alias("partition"))
        return max(1, int(frame.agg(functions.max("partition")).collect()[0][0]) + 1)

    @contextmanager
    def described(self, group: str, text: str) -> Iterator[None]:
        """Name this thread's jobs in Spark's UI."""
        if self._context is None:
            self.spark.addTag(group)
            try:
                yield
            finally:
                self.spark.removeTag(group)
            return
        names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
        before = {name: self._context.getLocalProperty(name) for name in names}
        for name, value in zip(names, (group, text, "true"), strict=True):
            self._context.setLocalProperty(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                self._context.setLocalProperty(name, value)

    def cancel(self, group: str) -> None:
        """Stop what runs under a name."""
        try:
            if self._context is not None:
                self._context.cancelJobGroup(group)
            else:
                self.spark.interruptTag(group)
        except Exception:
            # The session itself failed: nothing is running.
            return

    def done_tasks(self, group: str) -> int | None:
        """Number of finished tasks under a name, None if it is not known."""
        if self._context is None:
            return None
        tracker = self._context.statusTracker()
        done = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                found = tracker.getStageInfo(stage)
                done += found.numCompletedTasks if found is not None else 0
        return done
