"""Ray under vLLM on two nodes: the head's container starts Ray, waits for the other, then becomes the engine. Pure.

The waiting needs a shell. Its texts are constants, and whatever differs is a positional parameter: no value of a
recipe or an operator is ever part of a script. Both wait a bounded time, so that half a pair doesn't stand for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

RAY_PORT = 6379
LIMIT_S = 900
"""How long one node waits for the other's Ray."""

HEAD_SCRIPT = r"""nodes=$1; address=$2; port=$3; limit=$4; shift 4
echo "sparktop: starting Ray at $address:$port"
ray start --head --node-ip-address="$address" --port="$port" --include-dashboard=false \
  --object-store-memory=1073741824 || exit 1
begun=$(date +%s); told=-1
while :; do
  there=$(ray status --address="$address:$port" 2>/dev/null | grep -c '^ *[0-9][0-9]* node_')
  [ "$there" -ge "$nodes" ] && break
  if [ $(($(date +%s) - begun)) -ge "$limit" ]; then
    echo "sparktop: still waiting for $((nodes - there)) of $nodes Ray nodes after $limit s: given up"
    exit 1
  fi
  [ "$there" = "$told" ] || echo "sparktop: waiting for $((nodes - there)) of $nodes Ray nodes"
  told=$there
  sleep 2
done
echo "sparktop: all $nodes Ray nodes are there, starting the engine"
exec "$@"
"""
"""Parameters: nodes, the head's address, Ray's port, limit in seconds, then the engine's argv."""

WORKER_SCRIPT = r"""address=$1; port=$2; own=$3; limit=$4
echo "sparktop: waiting for Ray at $address:$port"
begun=$(date +%s)
until python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()' \
  "$address" "$port" 2>/dev/null; do
  if [ $(($(date +%s) - begun)) -ge "$limit" ]; then
    echo "sparktop: no Ray at $address:$port after $limit s: given up"
    exit 1
  fi
  sleep 2
done
echo "sparktop: joining Ray at $address:$port"
exec ray start --address="$address:$port" --node-ip-address="$own" --object-store-memory=1073741824 --block
"""
"""Parameters: the head's address, Ray's port, this node's own address, limit in seconds."""


def head_command(engine: Sequence[str], *, nodes: int, address: str, port: str, limit_s: int = LIMIT_S) -> list[str]:
    """What the head's container runs; its last process is the engine itself."""
    return ["sh", "-c", HEAD_SCRIPT, "sparktop-ray-head", str(nodes), address, port, str(limit_s), *engine]


def worker_command(*, address: str, port: str, own: str, limit_s: int = LIMIT_S) -> list[str]:
    """What a further node's container runs; its last process is `ray start --block`."""
    return ["sh", "-c", WORKER_SCRIPT, "sparktop-ray-worker", address, port, own, str(limit_s)]


def worker_argv(*, address: str, port: str, own: str) -> tuple[str, ...]:
    """What joins, as it is in the end."""
    return ("ray", "start", f"--address={address}:{port}", f"--node-ip-address={own}",
            "--object-store-memory=1073741824", "--block")  # fmt: skip
