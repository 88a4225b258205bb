"""The engines of one node: found, followed by their logs and figures."""
