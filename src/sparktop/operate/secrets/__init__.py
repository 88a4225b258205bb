"""Secrets in runs and archives, and root access."""
