"""Maintenance of a table's files, rows unchanged: compaction.

selection    which data files are written again, and which of them together
compaction   the new files, and their commit
reports      what was done
"""
