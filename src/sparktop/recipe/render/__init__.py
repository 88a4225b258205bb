"""A Recipe to containers and argv, per rank."""
