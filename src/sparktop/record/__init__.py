"""The tape: what reached a console of one node, kept on this machine's disk, and read again."""
