"""What runs on the Spark, and how it is packed for the way there."""
