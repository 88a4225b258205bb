"""What becomes of a scenario when something is done."""
