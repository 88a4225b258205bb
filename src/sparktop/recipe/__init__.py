"""Recipes: found, read, checked, rendered for nodes, weighed against memory. Pure, but for `sources` and `shelf`."""
