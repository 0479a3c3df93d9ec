"""Write the figures of bench/results into README.md: ``python -m bench.headlines``; ``python -m bench`` does it too."""

from __future__ import annotations

import json
from pathlib import Path

from bench import report

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def main() -> None:
    """Bring README.md up to date."""
    results = json.loads((ROOT / "bench" / "results" / "results.json").read_text())
    README.write_text(report.with_headlines(README.read_text(), results))


if __name__ == "__main__":
    main()
