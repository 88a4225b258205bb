"""Setting a new Spark up: the login user's groups, sudo rules, the fabric's addresses."""
