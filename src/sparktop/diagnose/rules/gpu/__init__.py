"""GPU: spinning, stuck in capture, held back."""
