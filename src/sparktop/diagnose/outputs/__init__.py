"""Whole outputs of commands."""
