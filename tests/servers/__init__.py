"""Object stores and a file system on loopback for tests and benchmarks, and a proxy that shapes and breaks.

``python -m tests.servers install`` builds each server once, outside the source tree. Nothing but loopback is reached at
run time. A server that cannot be had here raises MissingServerError, and one that does not start ServerFailure.
"""
