"""Recordings: written, played again, and what happened in them."""
