"""What it means: pure functions from readings and lines to events; no I/O, no clock."""
