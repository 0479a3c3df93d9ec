"""Runs over many units, and the sealed records of what an unfinished run has done."""
