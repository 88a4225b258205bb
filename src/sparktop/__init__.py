"""sparktop: a terminal operations console for NVIDIA DGX Spark."""

__version__ = "0.1.0"
