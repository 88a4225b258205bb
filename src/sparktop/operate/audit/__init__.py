"""The audit on disk: what was done, and runs that were interrupted."""
