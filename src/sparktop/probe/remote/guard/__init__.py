"""Ends one container before memory is gone; compiled when the first order comes."""
