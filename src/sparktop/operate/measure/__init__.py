"""Actions that measure: bounded loads on the cable and the GPU, refused while an engine holds work."""
