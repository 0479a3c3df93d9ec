"""``ags1.audit`` over a warehouse of tables that Spark made: nothing is wrong with them but what was made so."""

from __future__ import annotations

from ags1.audit import audit
from ags1.kms import MemoryKms
from tests.iceberg.spark_tables import DEFINITIONS
from tests.iceberg.warehouse import SparkTables


def test_each_table_of_a_warehouse_is_told_from_the_others(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    tables = [spark_tables[each.name] for each in DEFINITIONS]
    (warehouse,) = {table.location.parent for table in tables}
    for kms in (None, table_kms):
        report = audit(str(warehouse), allow="*", kms=kms)
        assert report.exit_code == 0
        groups = {each.path: each for each in report.groups if each.kind == "iceberg table"}
        assert set(groups) == {table.location.name for table in tables}
        for table in tables:
            assert groups[table.location.name].encrypted == ("encrypted" in table.features), table
        plain = {each.subject.partition("/")[0] for each in report.findings if "plaintext" in each.code}
        # Spark may leave the keys of the snapshots that it expires: with the same commands it does so or not. The
        # metadata shows that to whoever opens the table.
        unused = {each.subject for each in report.findings if each.code == "table-key-unused"}
        assert unused <= (set() if kms is None else {"maintained"})
        with_plaintext = {table.location.name for table in tables if "plaintext files" in table.features}
        assert plain <= with_plaintext
        assert plain
    assert plain == with_plaintext
    for each in report.files:
        if (each.protection, each.format) == ("looks encrypted", "Parquet"):
            assert each.columns_known, each.name
            assert each.keys, each.name
