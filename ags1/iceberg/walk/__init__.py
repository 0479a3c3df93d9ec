"""Walks over all files of a table: audit, verification, and the table as a tree."""
