"""How the console reaches where it is drawn: a terminal, or a page of a browser."""
