"""Reads any text, and an engine's log as it grows, against rules that are data."""
