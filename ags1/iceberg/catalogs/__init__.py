"""Tables in catalogs: one way to load any table, and to commit new metadata to it.

    catalog_table(catalog, "db.events") ---> CatalogTable.load()   ---> TableState   the metadata, as JSON
                                                         .commit(base, fields)       or ConflictError

    catalog        the commit                                       what guards it
    Hive           one alter_table                                  Hive's lock, and the expected metadata_location
    SQL            UPDATE ... WHERE metadata_location = old         the database
    Glue           update_table                                     the table's version in Glue
    REST           updates; of encrypted snapshots, in three steps  the server, by requirements
    None (a file)  the next metadata file is created                create-if-absent

PyIceberg's catalogs are the transport. Its models of metadata are not used, because they drop the keys.
"""

from __future__ import annotations

from ags1.iceberg.catalogs._table import CatalogTable, RefusedError, TableState, catalog_table, loaded

__all__ = ["CatalogTable", "RefusedError", "TableState", "catalog_table", "loaded"]
