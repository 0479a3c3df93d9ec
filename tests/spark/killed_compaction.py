"""Compaction by tasks that are killed; workers import it from here, and others need not import tables."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from ags1.spark.engine.iceberg_work import TableCompacting
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.runner import Outcome
from tests.spark.works import attempt


@dataclass
class KilledCompacting(TableCompacting):
    """The first attempt of each task is killed when it has written its bins."""

    def run(self, units: list[Unit]) -> Iterator[Outcome]:
        found = list(super().run(units))
        if attempt() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return iter(found)
