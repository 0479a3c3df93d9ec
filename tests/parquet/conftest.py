"""Fixtures of the Parquet tests: a test that takes one of these runs once for each file."""

from __future__ import annotations

import pytest

from tests.parquet import corpus


@pytest.fixture(params=corpus.CORPUS)
def corpus_name(request: pytest.FixtureRequest) -> str:
    """The name of each file of the corpus."""
    return str(request.param)


@pytest.fixture(params=corpus.SMALL)
def small_name(request: pytest.FixtureRequest) -> str:
    """The names of the few files that are enough for large products."""
    return str(request.param)
