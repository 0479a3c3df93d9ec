"""Existing tables, converted: encrypted, decrypted, re-keyed, relocated; and what is left over, removed.

work         one file, moved; its key on the way between processes
contents     what the branches and tags of a table have
vectors      deletes by position, for files with new paths
manifests    the new snapshots
journal      what a run has done, for the next one
engine       look, move, commit
operations   the public functions
"""
