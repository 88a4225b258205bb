"""Recipes without a screen: listed, shown, checked, and made of what there is."""
