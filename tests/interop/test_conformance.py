"""Other implementations read the conformance cases otherwise only where tests/vectors/README.md says so."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from tests.checks import HANG_SECONDS
from tests.conformance.__main__ import load
from tests.conformance.outcomes import run
from tests.servers._install import INSTALL_SECONDS, MissingServerError

# The first test waits for Maven or cargo, which may have to fetch and build everything.
pytestmark = pytest.mark.timeout(INSTALL_SECONDS + HANG_SECONDS)

OTHERWISE = {
    "parquet-java": ("parquet v2-arrow-form", "parquet no-ordinals"),
    "iceberg-rust": (
        *("streams b1*", "streams b3mib*", "streams b64-*", "streams nonces-arbitrary"),
        *("streams header-block-length-*", "streams foreign-*-magic", "streams foreign-next-version"),
        *("streams mib-flip-magic-*", "streams mib-flip-block-length", "streams short-8", "streams empty-*"),
        *("streams mib-trailing-*", "streams mib-cut-28-*"),
        *("key_metadata key-length-*", "key_metadata cut-26", "tables key-24"),
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_it_differs_where_the_page_says_so_and_nowhere_else(name: str) -> None:
    try:
        results = list(run(load(name)))
    except MissingServerError as error:
        pytest.skip(str(error))
    otherwise = [f"{result.group} {result.case}" for result in results if result.outcome == "failed"]
    assert [each for each in otherwise if not any(fnmatchcase(each, pattern) for pattern in OTHERWISE[name])] == []
    for pattern in OTHERWISE[name]:
        assert any(fnmatchcase(each, pattern) for each in otherwise), f"no case is read otherwise now: {pattern}"
