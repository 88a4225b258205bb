"""A reverse proxy's configuration before one engine, or two: nginx's and Caddy's. Pure text.

Streaming unbuffered, an hour's timeouts, bodies of 64 MB, addresses and no names of mDNS, /v1/ and /health only, a key
required (field report 001; docs/facts/bringup.md section 11). HTTP first: certbot then adds TLS to nginx's file; Caddy
gets its certificate by itself.
"""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum

from sparktop.dataclass import dataclass

BODY_MB = 64
LONGEST_S = 3600
CONNECT_S = 60
HEAD = "# Written by sparktop. To remove it: sparktop expose "
"""How each file of sparktop's begins."""
CERTBOT = "managed by Certbot"
_NAME = re.compile(r"(?=.{1,200}\Z)[a-z0-9](?:[a-z0-9-]{0,62})(?:\.[a-z0-9][a-z0-9-]{0,62})*", re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]{8,512}")
_LOCAL_NAME = re.compile(r"[^.]+|.*\.(?:local|lan|internal|home|home\.arpa)")


class Proxy(StrEnum):
    """A reverse proxy that is known here."""

    NGINX = "nginx"
    CADDY = "caddy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """An engine as the proxy reaches it."""

    address: str
    """An IP address: nginx reads names once, at its start, and mDNS is no part of that."""
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is exposed under one name."""

    name: str
    upstreams: tuple[Upstream, ...]
    port: int = 80
    has_ipv6: bool = True

    @property
    def identifier(self) -> str:
        """The name as part of nginx's own names, which hold for all its files."""
        return "sparktop_" + re.sub(r"[^a-z0-9]", "_", self.name.lower())


def server_name(text: str) -> str:
    """A host name as typed.

    Raises:
        ValueError: it is none; the text says so.
    """
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no host name")
    return text.lower()


def upstream(text: str) -> Upstream:
    """IP:PORT as typed.

    Raises:
        ValueError: it isn't that; the text says why.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"an upstream is IP:PORT, as 192.168.0.50:8000, not {text[:80]!r}")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise ValueError(
            f"{host[:80]!r} is no IP address: a proxy reads a name once, and .local names not at all"
        ) from None
    return Upstream(address=str(address), port=int(port))


def checked_key(text: str) -> str:
    """The key that clients must send.

    Raises:
        ValueError: no client could send it as it is, or it is too short.
    """
    if not _KEY.fullmatch(text):
        raise ValueError("a key is 8 to 512 of the signs A-Z a-z 0-9 . _ ~ + / = - (openssl rand -hex 32 makes one)")
    return text


def site_text(site: Site, proxy: Proxy, folder: str) -> str:
    """The site's file; `folder` is where its key is."""
    return _nginx(site, folder) if proxy is Proxy.NGINX else _caddy(site, folder)


def key_text(site: Site, proxy: Proxy, key: str) -> str:
    """The file with the key; `checked_key` has seen it."""
    if proxy is Proxy.CADDY:
        return f'@keyless not header Authorization "Bearer {key}"\n'
    # A regular expression: nginx compares plain texts in a map without case.
    pattern = re.sub(r"([.+])", r"\\\1", key)
    return f'map $http_authorization ${site.identifier}_key {{\n    default 0;\n    "~^[Bb]earer {pattern}$" 1;\n}}\n'


def _nginx(site: Site, folder: str) -> str:
    own = site.identifier
    servers = [f"    server {one};" for one in site.upstreams]
    listens = [f"    listen {site.port};", *([f"    listen [::]:{site.port};"] if site.has_ipv6 else [])]
    proxied = [
        f"proxy_pass http://{own};",
        "proxy_http_version 1.1;",
        'proxy_set_header Connection "";',
        "proxy_set_header Host $host;",
        "proxy_set_header X-Real-IP $remote_addr;",
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        "proxy_set_header X-Forwarded-Proto $scheme;",
    ]
    streamed = [
        "# Tokens go out as they come; a prompt goes in as it comes.",
        "proxy_buffering off;",
        "proxy_cache off;",
        "proxy_request_buffering off;",
        f"proxy_connect_timeout {CONNECT_S}s;",
        f"proxy_send_timeout {LONGEST_S}s;",
        f"proxy_read_timeout {LONGEST_S}s;",
        "# One try: a prompt that was sent is not sent to the other engine too.",
        "proxy_next_upstream error;",
    ]
    lines = [
        f"{HEAD}{site.name} --on HOST --remove",
        f"include {folder}/{site.name}.key;",
        f"upstream {own} {{",
        *(["    least_conn;"] if len(servers) > 1 else []),
        *servers,
        "    keepalive 32;",
        "}",
        "server {",
        *listens,
        f"    server_name {site.name};",
        f"    client_max_body_size {BODY_MB}m;",
        "    location /v1/ {",
        f"        if (${own}_key = 0) {{ return 401; }}",
        *(f"        {row}" for row in (*proxied, *streamed)),
        "    }",
        "    location = /health {",
        *(f"        {row}" for row in proxied),
        "        access_log off;",
        "    }",
        "    location / { return 404; }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _caddy(site: Site, folder: str) -> str:
    is_public = site.port == 80 and not _LOCAL_NAME.fullmatch(site.name)
    address = site.name if is_public else f"http://{site.name}:{site.port}"
    servers = " ".join(map(str, site.upstreams))
    lines = [
        f"{HEAD}{site.name} --on HOST --with caddy --remove",
        f"{address} {{",
        f"    import {folder}/{site.name}.key",
        f"    request_body {{\n        max_size {BODY_MB}MB\n    }}",
        "    handle /v1/* {",
        "        respond @keyless 401",
        f"        reverse_proxy {servers} {{",
        "            # Tokens go out as they come.",
        "            flush_interval -1",
        "            transport http {",
        f"                dial_timeout {CONNECT_S}s",
        f"                read_timeout {LONGEST_S}s",
        f"                write_timeout {LONGEST_S}s",
        "            }",
        "        }",
        "    }",
        "    handle /health {",
        f"        reverse_proxy {servers}",
        "    }",
        "    handle {",
        "        respond 404",
        "    }",
        "}",
    ]
    return "\n".join(lines) + "\n"
