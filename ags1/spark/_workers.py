"""What a Python worker of Spark's can be spared.

Before each task Spark calls importlib.invalidate_caches(), because files may have been added to its path. For each zip
archive on that path, and for each package in one, Python then reads the archive's whole directory again: pyspark.zip,
py4j's and the JAR of Spark's core. That is a tenth of a second, and most of what a small task takes. In an archive that
is as it was there is nothing new to be found: a worker that has run a task of ours looks at its time and size instead.
"""

from __future__ import annotations

import os
import sys
import zipimport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["spare_archives"]

_MARK = "_ags1_spares"


def _stamp(archive: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(archive)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def spare_archives() -> None:
    """In this process, from now on, read the directory of a zip archive again only if the archive has changed."""
    original = zipimport.zipimporter.invalidate_caches
    if hasattr(original, _MARK):
        return
    known = {
        (each.archive, each.prefix): _stamp(each.archive)
        for each in sys.path_importer_cache.values()
        if isinstance(each, zipimport.zipimporter)
    }

    def invalidate_caches(self: Any) -> None:
        key, stamp = (self.archive, self.prefix), _stamp(self.archive)
        if stamp is None or known.get(key) != stamp:
            known[key] = stamp
            original(self)

    setattr(invalidate_caches, _MARK, True)
    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]
