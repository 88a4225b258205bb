"""Connections to nodes over SSH."""
