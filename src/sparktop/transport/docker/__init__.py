"""The Docker Engine of a node, through its socket."""
