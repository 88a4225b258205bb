"""What is: from raw lines of a probe to one frozen picture. Nothing here can change a Spark."""
