"""How a node is reached: SSH, or this machine; the only package that knows asyncssh, docker and httpx."""
