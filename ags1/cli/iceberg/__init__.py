"""``ags1 iceberg``."""
