"""Recipes: read, checked, rendered for nodes, weighed against memory. Pure, but for `shelf`, which finds files."""
