"""`sparktop watch`: announces incidents without a screen."""
