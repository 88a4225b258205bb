"""A Spark at any second."""
