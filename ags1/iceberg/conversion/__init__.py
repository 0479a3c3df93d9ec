"""Existing tables, converted: encrypted, decrypted, re-keyed, relocated; and what is left over, removed.

sealing      keys of files on their way between processes
work         one file, moved
contents     what the branches and tags of a table have
vectors      deletes by position, for files with new paths
manifests    the new snapshots
journal      what a run has done, for the next one
engine       look, move, commit
operations   the public functions
"""
