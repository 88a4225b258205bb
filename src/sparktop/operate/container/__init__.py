"""One container: inspected, stopped, started, recreated; and what it left in shared memory."""
