"""What is shown, built once: findings, plans, runs, prospects, recipes, status."""
