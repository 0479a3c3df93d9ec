"""``ags1 parquet``."""
