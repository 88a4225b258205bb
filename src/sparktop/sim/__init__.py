"""Simulated Sparks: a real SSH server in this process that answers as one, from scenarios that are data."""
