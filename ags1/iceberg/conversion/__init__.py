"""Conversion of existing tables: encrypt, decrypt, re-key, relocate; and removal of files that are no longer needed.

work         one file, moved; its key on the way between processes
contents     what the branches and tags of a table have
vectors      deletes by position, for files with new paths
manifests    the new snapshots
journal      the finished work of a run, for the next one
engine       look, move, commit
operations   the public functions
"""
