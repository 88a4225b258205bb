"""Pulls an image through Docker, with its progress and this user's login."""

from __future__ import annotations

import binascii
import json
import os
import re
import select
import time

from sparktop.probe.runner.docker import DockerEngine, EngineLine, said_by_docker
from sparktop.probe.runner.journal import Unable, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Words = dict[str, Any]

LAYERS_AT_MOST = 2000
LINE_BYTES = 1 << 20
HUB = "docker.io"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io")
_REFERENCE = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[\w.-]*(?::\d+(?=/))?)(?:/[\w.-]+)*)(?::(?P<tag>[\w][\w.-]{0,127}))?"
    r"(?:@(?P<digest>[a-z0-9]+:[0-9a-f]{32,}))?",
    re.ASCII,
)


def as_reference(image: str) -> tuple[str, str]:
    """(name, tag or digest) of an image; "latest" without a tag, because Docker would pull every tag.

    Raises:
        Unable: it names no image in a registry.
    """
    found = _REFERENCE.fullmatch(image)
    if found is None or ".." in image or re.fullmatch("[0-9a-f]{64}", image) or image.startswith("sha256:"):
        raise Unable(f"{image[:200]!r} is not an image in a registry; nothing was done")
    return found["name"], found["digest"] or found["tag"] or "latest"


def registry_of(name: str) -> str:
    """The registry's host, of an image's name."""
    head, slash, _ = name.partition("/")
    registry = head if slash and ("." in head or ":" in head or head == "localhost") else HUB
    return HUB if registry in _HUB_NAMES else registry


def login_for(name: str) -> tuple[str, str]:
    """(this user's login to the registry, as Docker's header wants it; why a login couldn't be used)."""
    folder = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    try:
        config = json.loads(read_text(f"{folder}/config.json", LINE_BYTES))
    except FileNotFoundError:
        return "", ""
    except (OSError, ValueError, RecursionError):
        return "", f"can't read {folder}/config.json: pulled without a login"
    config = config if isinstance(config, dict) else {}
    registry = registry_of(name)
    auths = config.get("auths")
    for place, login in (auths if isinstance(auths, dict) else {}).items():
        host = str(place).partition("://")[2] or str(place)
        host = host.partition("/")[0]
        if (HUB if host in _HUB_NAMES else host) == registry and isinstance(login, dict):
            words = _login(login, str(place))
            if words:
                text = binascii.b2a_base64(json.dumps(words).encode(), newline=False).decode("ascii")
                return text.replace("+", "-").replace("/", "_"), ""
    helpers = config.get("credHelpers")
    helper = helpers.get(registry) if isinstance(helpers, dict) else None
    if helper or config.get("credsStore"):
        with_whom = str(helper or config["credsStore"])[:60]
        return (
            "",
            f"pulled without a login: that for {registry} is in a credential helper ({with_whom}), which isn't asked",
        )
    return "", ""


def _login(login: Words, place: str) -> Words:
    if isinstance(login.get("identitytoken"), str) and login["identitytoken"]:
        return {"identitytoken": login["identitytoken"], "serveraddress": place}
    user, password = login.get("username"), login.get("password")
    try:
        said = binascii.a2b_base64(str(login.get("auth") or "")).decode("utf-8")
    except ValueError:
        said = ""
    if ":" in said:
        user, _, password = said.partition(":")
    return {"username": user, "password": password, "serveraddress": place} if user and password else {}


class Layers:
    """Progress of an image's layers, as Docker reports it."""

    def __init__(self) -> None:
        self.layers: dict[str, Words] = {}
        self.error = ""

    def hear(self, line: bytes) -> None:
        """Take one line of Docker's progress."""
        try:
            words = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(words, dict):
            return
        detail = words.get("errorDetail")
        error = (detail.get("message") if isinstance(detail, dict) else "") or words.get("error")
        if error:
            self.error = str(error).strip()[:1000]
        status, name = str(words.get("status") or ""), words.get("id")
        stage = _STAGES.get(status)
        if (
            stage is None
            or not isinstance(name, str)
            or (name not in self.layers and len(self.layers) >= LAYERS_AT_MOST)
        ):
            return
        layer = self.layers.setdefault(name, {"stage": 0, "got": 0, "size": None, "unpacked": 0})
        layer["stage"] = stage
        detail = words.get("progressDetail")
        if stage in (_COMES, _UNPACKS) and isinstance(detail, dict) and "units" not in detail:
            done, size = detail.get("current"), detail.get("total")
            if isinstance(size, int) and size > 0:
                layer["size"] = size
            if isinstance(done, int):
                layer["got" if stage == _COMES else "unpacked"] = done
        if stage > _COMES and stage != _THERE and layer["size"]:
            layer["got"] = layer["size"]

    @property
    def brought(self) -> int:
        """Bytes that came over the network, compressed as they are sent."""
        return sum(layer["got"] for layer in self.layers.values())

    def progress(self) -> tuple[int | None, int | None, str] | None:
        """(bytes, of how many, in words); None before the first layer. Docker gives a layer's size only when it begins
        to fetch it: the total is known when it has begun all of them."""
        layers = list(self.layers.values())
        if not layers:
            return None
        come = [layer for layer in layers if layer["stage"] > _COMES]
        ready = [layer for layer in layers if layer["stage"] >= _READY]
        if all(layer["size"] or layer["stage"] > _COMES for layer in layers):
            total = sum(layer["size"] or 0 for layer in layers if layer["stage"] != _THERE)
        else:
            total = None
        if len(come) < len(layers):
            return self.brought, total or None, f"{len(come)} of {_layers(len(layers))}"
        unpacked = sum(
            (layer["size"] or 0) if layer["stage"] == _READY else layer["unpacked"]
            for layer in layers
            if layer["stage"] != _THERE
        )
        words = f"unpacking, {len(ready)} of {_layers(len(layers))}"
        return (unpacked, total, words) if unpacked and total else (None, None, words)


def _layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"


_COMES, _UNPACKS, _READY, _THERE = 1, 3, 4, 5
_STAGES = {
    "Pulling fs layer": 0, "Waiting": 0, "Downloading": _COMES, "Verifying Checksum": 2, "Download complete": 2,
    "Extracting": _UNPACKS, "Pull complete": _READY, "Already exists": _THERE,
}  # fmt: skip


class ImageStream:
    """One image's pull, which is repeated where the connection to Docker broke."""

    def __init__(self, docker: DockerEngine, name: str, tag: str, login: str) -> None:
        self.docker = docker
        self.query = {"fromImage": name, "tag": tag}
        self.login = login
        self.layers = Layers()
        self.is_begun = False
        self.broke = False

    def progress(self) -> tuple[int | None, int | None, str] | None:
        return self.layers.progress()

    def pull(self, until: float, tick: Callable[[], None]) -> tuple[int, str]:
        """(HTTP status, Docker's error). Whatever is raised closes the connection, and so stops the pull in Docker.

        Raises:
            DockerLost: the connection broke, or the time was over.
        """
        self.is_begun, self.broke = True, False
        self.layers = Layers()
        headers = {"X-Registry-Auth": self.login} if self.login else {}

        def connect(deadline: float) -> EngineLine:
            return _Pulling(deadline, self.layers, tick)

        status, _, body, _ = self.docker.ask(
            "POST",
            "/images/create",
            self.query,
            seconds=max(1.0, until - time.monotonic()),
            headers=headers,
            line=connect,
        )
        if status != 200:
            return status, said_by_docker(status, body)
        return status, self.layers.error


class _Pulling(EngineLine):
    """A connection whose answer takes hours: it is read line by line as it comes."""

    def __init__(self, deadline: float, layers: Layers, tick: Callable[[], None]) -> None:
        super().__init__(deadline)
        self.layers = layers
        self.tick = tick
        self.rest = b""

    def _more(self) -> bool:
        self.tick()
        while not select.select([self.socket], [], [], max(0.0, min(1.0, self.deadline - time.monotonic())))[0]:
            if time.monotonic() >= self.deadline:
                raise TimeoutError
            self.tick()
        return super()._more()

    def _take(self, size: int) -> bool:
        while size > 0:
            if not self.pending and not self._more():
                raise ValueError("the answer is cut off")
            piece, self.pending = self.pending[:size], self.pending[size:]
            size -= len(piece)
            self.body = (self.body + piece)[-LINE_BYTES:] if not self.layers.layers else bytearray()
            *lines, self.rest = (self.rest + piece).split(b"\n")
            for line in lines:
                self.layers.hear(line)
            if len(self.rest) > LINE_BYTES:
                self.rest = b""
        self.layers.hear(self.rest)  # the last line may lack its end; where more of it comes, it is taken twice
        return True
