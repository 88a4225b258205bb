"""Parts of the probe; they import nothing of ours."""
