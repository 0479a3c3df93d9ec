"""``ags1 kms``."""
