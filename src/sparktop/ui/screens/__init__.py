"""Screens: the console, help, and the questions it asks."""
