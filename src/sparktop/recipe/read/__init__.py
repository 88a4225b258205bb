"""A file to a Recipe, or its problems."""
