"""Scenario files and the script they make."""
