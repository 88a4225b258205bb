"""What the proxies of a host serve: the statements of nginx's and Caddy's files that say it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from sparktop.model.survey import Output

_FOLDERS = ("/etc/nginx/sites-enabled", "/etc/nginx/conf.d", "/etc/nginx/nginx.conf", "/etc/caddy/sparktop")
_STATEMENTS = r"^\s*(upstream|server_name|server|reverse_proxy)\s|^\S+ \{$"
_PROXIED = re.compile(r"(?:server|reverse_proxy) (?:127\.0\.0\.1|\[::1\]):(\d{1,5})\b")
_NAME = re.compile(r"server_name (\S+?);|(?:http://([^\s:]+)|([a-z0-9-]+(?:\.[a-z0-9-]+)+))(?::\d+)? \{")


def sites_question(host: str) -> Output:
    """Asks for upstreams, servers and names in all that nginx loads, and in sparktop's sites of Caddy; links are
    followed."""
    return Output(node=host, argv=("grep", "-RsE", _STATEMENTS, *_FOLDERS))


def statements(text: str | None) -> Iterator[tuple[str, str]]:
    """(file, statement) of each line that grep printed."""
    for row in (text or "").splitlines():
        path, _, statement = row.partition(":")
        yield path, statement.strip()


def names_by_port(found: Iterable[tuple[str, str]]) -> Mapping[int, str]:
    """The host name by the port of the host itself that its file leads to."""
    names: dict[str, str] = {}
    ports: dict[str, list[int]] = {}
    for path, statement in found:
        if (proxied := _PROXIED.match(statement)) is not None:
            ports.setdefault(path, []).append(int(proxied[1]))
        elif (named := _NAME.fullmatch(statement)) is not None:
            names[path] = named[1] or named[2] or named[3]
    return {port: names[path] for path, numbers in ports.items() if path in names for port in numbers}
