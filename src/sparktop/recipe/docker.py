"""A container as POST /containers/create of Docker's API takes it. Pure; holds secrets, so it goes over a pipe only."""

from __future__ import annotations

from typing import Any

from sparktop.recipe.rendered import ContainerSpec


def body(spec: ContainerSpec) -> dict[str, Any]:
    """The request's JSON; the container's name is the query's."""
    host: dict[str, Any] = dict(spec.host)
    if spec.mounts:
        host["Binds"] = [
            f"{mount.source}:{mount.target}" + (":ro" if mount.is_read_only else "") for mount in spec.mounts
        ]
    found: dict[str, Any] = {
        "Image": spec.image,
        "Cmd": list(spec.argv),
        "Env": [f"{name}={value}" for name, value in spec.environment.items()],
        "Labels": dict(spec.labels),
        "HostConfig": host,
    }
    if spec.entrypoint is not None:
        # An empty text, and not an empty list, is how the API says "none at all".
        found["Entrypoint"] = list(spec.entrypoint) or [""]
    if ports := host.get("PortBindings"):
        found["ExposedPorts"] = {port: {} for port in ports}
    if spec.user:
        found["User"] = spec.user
    if spec.workdir:
        found["WorkingDir"] = spec.workdir
    return found
