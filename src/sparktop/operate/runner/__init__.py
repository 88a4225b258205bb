"""The runner on a node, seen from the console."""
