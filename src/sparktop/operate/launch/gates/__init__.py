"""Pre-launch checks ("gates"), by subject."""
