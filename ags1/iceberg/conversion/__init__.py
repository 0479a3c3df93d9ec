"""Conversion of existing tables: encrypt, decrypt, re-key, relocate; and removal of files that are no longer needed.

work         one file, moved; its key on the way between processes
manifests    what the branches and tags of a table have; the new snapshots, and vectors for files with new paths
journal      the finished work of a run, for the next one
engine       look, move, commit
operations   the public functions
"""
