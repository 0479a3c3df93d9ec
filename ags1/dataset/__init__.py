"""A directory of encrypted files, here or in an object store, under one master key.

>>> import tempfile, pathlib
>>> from ags1 import dataset, kms
>>> work = pathlib.Path(tempfile.mkdtemp())
>>> (work / "raw").mkdir()
>>> _ = (work / "raw" / "a.txt").write_bytes(b"hello")
>>> client = kms.MemoryKms({"lake": bytes(32)})
>>> with dataset.encrypt(work / "raw", work / "vault", client, "lake") as vault:
...     vault.open("a.txt").read()
b'hello'

    v-7.json  --names-->  manifests  --name-->  objects: each written once, under a unique name
    v-8.json  --names-->  most of the same, and the new ones

No file is changed after it is written. The creation of one small file makes a new version, atomically, on every
store. docs/dataset-format.md shows each byte; :mod:`ags1.dataset.transaction` has the commit.

    master key in a KMS  ->  key encryption key  ->  key of the dataset  ->  a key and an identity for each file

The calls to the KMS do not grow with the number of files. A file that was truncated, replaced by another,
damaged, removed or added is detected and named, and so is an older manifest. A whole dataset that was restored from an
older copy is not detected: keep :attr:`Dataset.pins` elsewhere, and pin it with ``open(..., pins=)``.
"""

from __future__ import annotations

from ags1.dataset._dataset import Dataset
from ags1.dataset._files import Files, Leaf
from ags1.dataset._opening import encrypt, open, preview
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.pins import Pins
from ags1.dataset.reports import DatasetRewrapReport, ExpireReport, RunReport
from ags1.dataset.versions import Version

__all__ = [
    "Dataset",
    "DatasetEntry",
    "DatasetRewrapReport",
    "ExpireReport",
    "Files",
    "Leaf",
    "Pins",
    "RunReport",
    "Version",
    "encrypt",
    "open",
    "preview",
]
