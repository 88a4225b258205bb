"""Does it fit, and what would make it fit."""
