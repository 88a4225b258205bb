"""What to do: pure planners make a plan, one executor carries it out; the only code that changes a Spark."""
