"""What a proxy on a node serves by a name: the sites of nginx and Caddy that lead to a port of the node itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparktop.model.survey import Output

_FOLDERS = ("/etc/nginx/sites-enabled", "/etc/nginx/conf.d", "/etc/caddy/sparktop")
_STATEMENTS = r"^\s*(server_name|server|reverse_proxy) |^\S+ \{$"
_PROXIED = re.compile(r"(?:server|reverse_proxy) (?:127\.0\.0\.1|\[::1\]):(\d{1,5})\b")
_NAME = re.compile(r"server_name (\S+?);|(?:http://([^\s:]+)|([a-z0-9-]+(?:\.[a-z0-9-]+)+))(?::\d+)? \{")


def sites_ask(node: str) -> Output:
    return Output(node=node, argv=("grep", "-RsE", _STATEMENTS, *_FOLDERS))


def parse_sites(text: str | None) -> Mapping[int, str]:
    """The host name by the port that it leads to, from grep's lines."""
    names: dict[str, str] = {}
    ports: dict[str, list[int]] = {}
    for row in (text or "").splitlines():
        path, _, statement = row.partition(":")
        words = statement.strip()
        if (proxied := _PROXIED.match(words)) is not None:
            ports.setdefault(path, []).append(int(proxied[1]))
        elif (named := _NAME.fullmatch(words)) is not None:
            names[path] = named[1] or named[2] or named[3]
    return {port: names[path] for path, numbers in ports.items() if path in names for port in numbers}
