"""Verification of Parquet files, and its report."""
