r"""Find out what is encrypted in a bucket, a directory, a dataset or a table, and what is not.

>>> import pathlib, tempfile
>>> from ags1.audit import audit
>>> lake = pathlib.Path(tempfile.mkdtemp())
>>> _ = (lake / "people.csv").write_text("name,born\nAda,1815\n")
>>> report = audit(lake)
>>> report.files[0].protection, report.files[0].format, report.exit_code
('plaintext', 'CSV', 5)

    one listing  -->  which files belong to a dataset or a table   their metadata is read, and with a KMS opened
                 -->  one small read of each file                 its magic bytes; of Parquet, the footer

Only the metadata of datasets and tables is decrypted: :meth:`ags1.dataset.Dataset.verify`,
:meth:`ags1.iceberg.EncryptedTable.verify` and :func:`ags1.parquet.verify_tree` authenticate the data itself.
"""

from __future__ import annotations

from ags1.audit.classification import PROTECTIONS, AuditedFile
from ags1.audit.engine import audit
from ags1.audit.report import AuditReport, Group

__all__ = ["PROTECTIONS", "AuditReport", "AuditedFile", "Group", "audit"]
