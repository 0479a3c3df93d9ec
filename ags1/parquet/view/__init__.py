"""Encrypted Parquet files as plaintext ones, for any reader."""
