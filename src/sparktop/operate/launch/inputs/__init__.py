"""What the nodes answer before a launch."""
