"""Give the cases to implementations and print one pass table: ``python -m tests.conformance [NAME ...] [--write]``.

Names are those of `IMPLEMENTATIONS`; without one, all run. ``--write`` puts the table into docs/compatibility.md. The
exit status is 1 if ags1 fails a case.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Iterator, Mapping

from tests.conformance.outcomes import GROUPS, Implementation, Result, run
from tests.results import write_section

IMPLEMENTATIONS = {
    "ags1": ("by_ags1", "AGS1"),
    "pyarrow": ("by_pyarrow", "PYARROW"),
    "iceberg-java": ("by_java", "ICEBERG_JAVA"),
    "parquet-java": ("by_java", "PARQUET_JAVA"),
    "iceberg-rust": ("by_rust", "ICEBERG_RUST"),
}


def load(name: str) -> Implementation:
    """Return an implementation by its name on the command line."""
    module, attribute = IMPLEMENTATIONS[name]
    implementation: Implementation = getattr(importlib.import_module(f"tests.conformance.runners.{module}"), attribute)
    return implementation


def table(results: Mapping[str, list[Result]]) -> Iterator[str]:
    """The pass table in Markdown: cases that an implementation read as the case says, of those that it reads at all."""
    yield f"| | {' | '.join(GROUPS.values())} |"
    yield f"|---|{'---|' * len(GROUPS)}"
    for name, found in results.items():
        cells = []
        for group in GROUPS:
            read = [result for result in found if result.group == group and result.outcome != "not read"]
            passed = sum(result.outcome == "passed" for result in read)
            cells.append(f"{passed} of {len(read)}" if read else "")
        yield f"| {name} | {' | '.join(cells)} |"


def failures(results: Iterable[Result]) -> Iterator[str]:
    """A line for each case that was not read as it says."""
    for result in results:
        if result.outcome == "failed":
            yield f"  {result.group} {result.case}: {result.said}"


def main() -> None:
    """Run the implementations that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*IMPLEMENTATIONS, []])
    parser.add_argument("--write", action="store_true", help="put the table into docs/compatibility.md")
    arguments = parser.parse_args()
    results: dict[str, list[Result]] = {}
    for name in arguments.names or IMPLEMENTATIONS:
        implementation = load(name)
        results[implementation.name()] = list(run(implementation))
    lines = list(table(results))
    print("\n".join(lines))
    for shown, found in results.items():
        if said := list(failures(found)):
            print(f"\n{shown}, otherwise than the cases say:", *said, sep="\n")
    if arguments.write:
        write_section("docs/compatibility.md", "conformance", "\n".join(lines))
    ours = next((found for shown, found in results.items() if shown.startswith("ags1 ")), [])
    raise SystemExit(any(result.outcome == "failed" for result in ours))


if __name__ == "__main__":
    main()
