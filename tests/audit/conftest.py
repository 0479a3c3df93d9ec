"""The lake, made once for the tests that only look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.lake import make


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with everything in it; tests do not change it."""
    return make(tmp_path_factory.mktemp("audit") / "lake")
