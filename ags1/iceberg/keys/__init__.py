"""The key hierarchy of a table: ``encryption-keys``, its entries, and the key encryption keys."""
