"""Where a launch serves when it has gone well, by what name, and how it is asked. Pure."""

from __future__ import annotations

import ipaddress
import json
import shlex

from sparktop.errors import UsageError
from sparktop.model.engine import EngineKind
from sparktop.recipe.argv import has, value_of
from sparktop.recipe.ownsecrets import ENGINE_KEY
from sparktop.recipe.rendered import Rendered
from sparktop.transport.targets import parse_target

_ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 (what an engine is told to listen on)
_LOOPBACK_DEFAULT = "127.0.0.1"
"""SGLang's own, where nothing is said; vLLM listens everywhere."""
_PROMPT = "Say hello."


def outcome(rendered: Rendered, *, has_key: bool) -> str:
    """ "serves Qwen/Qwen3-0.6B at http://spark1:8000/v1"; the host is called what the operator calls it."""
    where = f"serves {rendered.served_name} at {_base(rendered)}"
    if _is_shut_in(rendered):
        where += f", on {rendered.head.node} alone: it listens on {_listens(rendered)}"
    return f"{where}, key: as {ENGINE_KEY}" if has_key else where


def asking(rendered: Rendered, *, has_key: bool) -> str:
    """The first question as a line to paste: run here, or on the node where it can be reached only there."""
    body = {"model": rendered.served_name, "messages": [{"role": "user", "content": _PROMPT}]}
    words = ["curl", f"{_base(rendered)}/chat/completions", "-H", "Content-Type: application/json"]
    key = f' -H "Authorization: Bearer ${ENGINE_KEY}"' if has_key else ""  # the shell's own, never its value
    line = f"{shlex.join(words)}{key} -d {shlex.quote(json.dumps(body))}"
    return f"on {rendered.head.node}: {line}" if _is_shut_in(rendered) else line


def _base(rendered: Rendered) -> str:
    scheme = "https" if has(rendered.head.argv, "ssl-certfile") else "http"
    host = _listens(rendered) if _is_shut_in(rendered) else _host(rendered.head.node)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{rendered.port}/v1"


def _listens(rendered: Rendered) -> str:
    said = value_of(rendered.head.argv, "host")
    return said if said is not None else _LOOPBACK_DEFAULT if rendered.engine is EngineKind.SGLANG else ""


def _is_shut_in(rendered: Rendered) -> bool:
    """Whether nobody but its own machine reaches it."""
    listens = _listens(rendered)
    if listens in _ANYWHERE:
        return False
    try:
        return ipaddress.ip_address(listens).is_loopback
    except ValueError:
        return listens == "localhost"


def _host(node: str) -> str:
    """Of a node's name, without the ssh user and port."""
    try:
        return parse_target(node).host
    except UsageError:
        return node
