"""Live rules over the picture, by what they judge."""
