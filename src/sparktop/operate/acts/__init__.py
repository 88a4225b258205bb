"""The acts: each a class with its data, how it is performed, and its words."""
