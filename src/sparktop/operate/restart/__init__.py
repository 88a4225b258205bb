"""Stop and restart engines without changing them."""
