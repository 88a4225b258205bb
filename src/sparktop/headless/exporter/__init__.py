"""`sparktop exporter`: what is watched, as metrics for Prometheus."""
