"""The structure of a Parquet file: footer, schema, chunks, and what an inspection shows of them."""
