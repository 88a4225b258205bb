"""Recipes without a screen: listed, shown, checked, and made of what there is, and their sources."""
