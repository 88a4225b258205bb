"""Reads launch configurations, on paper or running, and says what in them will not do what it says."""
