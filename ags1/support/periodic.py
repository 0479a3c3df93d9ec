"""What is called now and then while work goes on: progress."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Periodic:
    """A function that a thread calls now and then, until `stop` or until it raises OSError."""

    def __init__(self, function: Callable[[], object], seconds: float) -> None:
        self._function, self._seconds = function, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ags1-periodic", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.wait(self._seconds):
                self._function()
        except OSError:
            # Nobody looks any more; the work itself is still wanted.
            return

    def stop(self) -> None:
        """Return when the function is not running, and will not be called again."""
        self._over.set()
        self._thread.join()
