"""What is known of a Spark, as frozen data: no I/O, no behaviour beyond arithmetic on its own fields."""
