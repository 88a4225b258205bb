"""Serving an engine on and on: its systemd unit, and a reverse proxy before it."""
