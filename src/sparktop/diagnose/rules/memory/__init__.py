"""Memory: how much is left, who holds it, does it come back."""
