"""Judges of waits: whether what a step waits for has come."""
