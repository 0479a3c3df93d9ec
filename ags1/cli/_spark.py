"""``ags1 spark``: what ``python -m ags1.spark`` does, under this command's name."""

from __future__ import annotations

import argparse

__all__ = ["spark"]


def spark(options: argparse.Namespace) -> int:
    """Run ``ags1 spark``.

    Raises
    ------
    ImportError
        The extra is missing; says which.
    """
    from ags1.spark.job import main

    return main(options.arguments, prog="ags1 spark")
