"""Two nodes: link, parity, ranks."""
