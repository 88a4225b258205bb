"""What is said of each problem: its card, by case, in one TOML file an area."""
