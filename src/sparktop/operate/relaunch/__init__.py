"""Relaunch an engine with a change to its flags, variables, container options or image."""
