"""Maintenance of a table's files, rows unchanged: compaction, manifests, and all of it in the right order.

rewriting    which data files are written again, and together; one of these bins, in whatever process
compaction   all of them, and their commit
manifests    few instead of many; delete files that delete nothing any more
maintaining  all steps by a policy
reports      what was done
"""
