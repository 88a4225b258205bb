"""Rules over the picture of one or two nodes: pure functions, one module for each subject."""
