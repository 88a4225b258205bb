"""Connections to nodes: over SSH, or to this machine; the only package that uses asyncssh, docker and httpx."""
