"""Benchmarks of ags1: every figure beside its floor or its peer, measured in the same run. See README.md."""
