"""Widgets that know nothing of Sparks."""
