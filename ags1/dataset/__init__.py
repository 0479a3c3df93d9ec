"""A directory of encrypted files under one master key, with the key hierarchy of an Iceberg table.

>>> import tempfile, pathlib
>>> from ags1 import dataset, kms
>>> work = pathlib.Path(tempfile.mkdtemp())
>>> (work / "raw").mkdir()
>>> _ = (work / "raw" / "a.txt").write_bytes(b"hello")
>>> client = kms.MemoryKms({"lake": bytes(32)})
>>> with dataset.encrypt(work / "raw", work / "vault", client, "lake") as vault:
...     vault.open("a.txt").read()
b'hello'

    master key in a KMS  ->  key encryption key  ->  key of the manifest  ->  a key and an identity for each file

One call to the KMS opens any number of files. A file that was truncated, swapped for another, replaced by an older
version, damaged, removed or added is detected and named, and so is an older manifest. A whole directory that was put
back from an older copy cannot be: keep :attr:`Dataset.version` elsewhere, and pin it with
``open(..., expected_version=)``.
"""

from __future__ import annotations

from ags1.dataset._dataset import Dataset, Files, encrypt, open, preview
from ags1.dataset._manifest import Entry
from ags1.dataset.reports import Problem, RewrapReport, RunReport, TreeReport

__all__ = [
    "Dataset",
    "Entry",
    "Files",
    "Problem",
    "RewrapReport",
    "RunReport",
    "TreeReport",
    "encrypt",
    "open",
    "preview",
]
