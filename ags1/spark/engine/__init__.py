"""Work on a cluster: planning, sealed payloads, tasks, results, progress."""
