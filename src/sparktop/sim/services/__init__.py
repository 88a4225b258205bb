"""Who answers on a simulated Spark."""
