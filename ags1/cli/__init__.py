"""The `ags1` command."""

from ags1.cli.entry import main

__all__ = ["main"]
