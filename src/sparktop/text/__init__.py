"""Text without a terminal: units, lines, tables, bars, expressions."""
