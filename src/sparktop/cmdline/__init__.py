"""Command lines and the files that contain them: parsed with positions, edited, written."""
