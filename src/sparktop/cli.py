"""The command line: argument parsing, and the one place that builds objects."""

from __future__ import annotations


def main() -> int:
    """Run the command the arguments name; the exit code."""
    return 2
