"""The console: Textual, and nothing that reaches a node by itself."""
