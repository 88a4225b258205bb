"""A reverse proxy on a simulated Spark, as the files of nginx that sparktop wrote there describe it."""

from __future__ import annotations

import re

from sparktop.dataclass import dataclass
from sparktop.sim.scenario.script import NodeScript

SITES = ("/etc/nginx/sites-available/", "/etc/nginx/conf.d/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a port of the proxy leads to."""

    engine_port: int
    """Of the engine on the same node."""
    key_pattern: str
    """Of the Authorization header; empty: none fits."""

    def status(self, path: str, key: str) -> int:
        """401 without the key, 404 outside /v1/ and /health, else 200: the engine answers."""
        if path == "/health":
            return 200
        if not path.startswith("/v1/"):
            return 404
        return 200 if self.key_pattern and re.search(self.key_pattern, f"Bearer {key}") else 401


def served(script: NodeScript, port: int) -> Served | None:
    """What nginx serves on this port; None where no file says so."""
    files = {answer.name: answer.output for answer in script.answers}
    for path, text in files.items():
        if not path.startswith(SITES) or not re.search(rf"^\s*listen {port};", text, re.MULTILINE):
            continue
        upstream = re.search(r"^\s*server 127\.0\.0\.1:(\d+);", text, re.MULTILINE)
        name = re.search(r"^\s*server_name (\S+);", text, re.MULTILINE)
        key_file = files.get(f"/etc/nginx/sparktop/{name[1]}.key", "") if name else ""
        pattern = re.search(r'"~(\^.*\$)" 1;', key_file)
        if upstream is not None:
            return Served(engine_port=int(upstream[1]), key_pattern=pattern[1] if pattern else "")
    return None
