"""What a step of a plan is, and what it works with."""
