"""Evidence of a problem, collected into one archive."""
