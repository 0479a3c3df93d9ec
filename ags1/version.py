"""The version of the package: the only place that states it."""

version = "0.1.0"
