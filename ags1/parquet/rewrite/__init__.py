"""New Parquet files from existing ones: encrypted, decrypted, re-keyed, rotated; one, or a whole tree."""
