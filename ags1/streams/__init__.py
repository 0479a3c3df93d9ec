"""Streams over AGS1: Reader and Writer, open(), whole files, verification."""
