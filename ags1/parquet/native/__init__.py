"""Parquet without decoding it, natively: Thrift, page headers, pages, their modules, conversion."""
