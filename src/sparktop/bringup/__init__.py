"""Bring-up: checks by chapter from first contact to a proven pair, what each found, and what stays proven."""
