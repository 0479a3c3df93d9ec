"""Spark's data source ``format("ags1")``, with its decoders and encoders."""
