"""Keys of Parquet files: configurations, key management services, key material."""
