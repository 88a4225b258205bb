"""Launch a recipe: checks, downloads, steps and review."""
