"""``ags1 dataset``."""
