"""Scans: which files are read, with which deletes and filters, into Arrow."""
