"""The Docker SDK's client, bounded: nothing of the operator's machine goes out, and no answer can fill its memory.

The SDK reads ~/.docker/config.json and sends its HttpHeaders with every request; requests adds proxies and logins from
the environment and ~/.netrc, reads answers to their end, and inflates them (27 MB of gzip are 7 GB).
"""

from __future__ import annotations

import functools
import time
from typing import Any

from sparktop.bounds import json_of
from sparktop.transport.lean import import_lean

TIMEOUT_S = 10
ANSWER_BYTES = 8 << 20
"""The list of some thousand containers."""
ANSWER_S = 30.0
"""For a whole answer: one that comes byte by byte never runs into TIMEOUT_S."""


class Unreadable(OSError):
    """An answer that is not read: compressed, too long, or too slow."""


def make_client(base_url: str) -> Any:
    """A docker.APIClient of a Unix socket; blocking, for a thread."""
    return _client_class()(base_url)


@functools.cache
def _client_class() -> type:
    from http.cookiejar import DefaultCookiePolicy

    docker = import_lean("docker")
    import requests
    from docker.auth import AuthConfig
    from docker.transport import UnixHTTPAdapter
    from docker.utils.proxy import ProxyConfig

    class BoundedClient(docker.APIClient):  # type: ignore[misc,name-defined]
        def __init__(self, base_url: str) -> None:
            # Instead of the SDK's own __init__, which reads the operator's files and asks for the version at once.
            requests.Session.__init__(self)
            self.trust_env = False
            self.headers.clear()
            self.headers.update({"User-Agent": "sparktop", "Accept": "*/*", "Accept-Encoding": "identity"})
            self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
            self.timeout = TIMEOUT_S
            self._general_configs: dict[str, Any] = {}
            self._proxy_configs = ProxyConfig.from_dict({})
            self._auth_configs = AuthConfig({})
            self.credstore_env = None
            self._custom_adapter = UnixHTTPAdapter(f"http+{base_url}", TIMEOUT_S)
            self.mount("http+docker://", self._custom_adapter)
            self._unmount("http://", "https://")
            self.base_url = "http+docker://localhost"
            self._version = self._retrieve_server_version()

        def send(self, request: Any, **options: Any) -> Any:
            """Send a request: no redirect is followed, and only a log or a program's output may go on for ever."""
            is_stream = options.get("stream")
            response = super().send(request, **{**options, "stream": True})
            try:
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise Unreadable("its answer is compressed, although none was requested")
                if not is_stream or response.status_code not in (101, 200):
                    response._content = _body(response)
                    response._content_consumed = True
            except BaseException:
                response.close()
                raise
            return response

        def get_redirect_target(self, resp: Any) -> None:
            """None: before requests follows a redirect, it reads the answer to its end."""

        def _result(self, response: Any, json: bool = False, binary: bool = False) -> Any:
            self._raise_for_status(response)
            return json_of(response.content) if json else response.content if binary else response.text

    return BoundedClient


def _body(response: Any) -> bytes:
    """The body of an answer.

    Raises:
        Unreadable: it is too long, or takes too long.
    """
    body = bytearray()
    until_s = time.monotonic() + ANSWER_S
    while data := response.raw.read1(65536, decode_content=False):
        body += data
        if len(body) > ANSWER_BYTES:
            raise Unreadable(f"its answer has more than {ANSWER_BYTES:,} bytes")
        if time.monotonic() > until_s:
            raise Unreadable(f"its answer takes more than {ANSWER_S:.0f} s")
    if response.status_code >= 400:
        try:
            json_of(bytes(body))
        except ValueError:
            return b""  # the SDK reads the reason in it without any limit
    return bytes(body)
