"""Panes: each draws one part of the picture."""
