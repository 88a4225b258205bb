"""Follow what a process outside containers writes: the file that its output goes to, or the journal of its unit."""

from __future__ import annotations

import re
from collections.abc import Callable

from sparktop.errors import TransportError
from sparktop.masking import mask_text
from sparktop.transport.base import Transport
from sparktop.transport.docker.log_follower import TETHERED, FollowEnd, OnBatch, Pump

_OUTPUT = """\
file=$(readlink "/proc/$1/fd/1") || none=4
if [ -f "$file" ]; then echo "cat $file"; exec tail -n "$2" -F -- "$file"; fi
case $3 in
*/user@*.service/*.service) unit=--user-unit how="--user " ;;
*.service) unit=--unit ;;
*) exit ${none:-3} ;;
esac
echo "journalctl $how-u ${3##*/}"
TZ=UTC exec journalctl "$unit=${3##*/}" "--since=@$4" -f -n "$2" -o short-unix --no-hostname --quiet
"""
"""`sh -c ... sh PID LINES CGROUP SINCE`; its first line is the command that prints the same, as a person types it."""
_COMMAND = re.compile(r"(?:cat|journalctl(?: --user)? -u) [\w./@:+-]+", re.ASCII)
"""One that a shell takes as it stands: it comes from another machine."""
_REASONS = {
    3: "it writes to a terminal or to another program: its log is there",
    4: "it belongs to another user and to no unit: where it writes can't be seen",
}


async def follow_output(
    transport: Transport,
    pid: int,
    *,
    cgroup: str,
    since: float,
    on_command: Callable[[str], None],
    on_batch: OnBatch,
    tail: int,
) -> FollowEnd:
    """Follow it until the process's connection ends or the caller is cancelled; nothing stays on the node.

    Args:
        cgroup: the process's, whose last part names its unit.
        since: node wall clock seconds: a journal is read from there.
        on_command: told the command that prints the same, where a shell takes it as it stands.
        tail: lines of the past to begin with.
    """
    script = ("sh", "-c", _OUTPUT, "sh", str(pid), str(tail), cgroup, str(int(since)))
    pump = Pump(on_batch, mask=mask_text, stamped=True, after_wall_s=since)
    try:
        channel = await transport.run(("sh", "-c", TETHERED, "sh", *script))
        try:
            await channel.write(b"go\n")
            head = b""
            while b"\n" not in head and (data := await channel.read()):
                head += data
            command, _, data = head.partition(b"\n")
            if _COMMAND.fullmatch(text := command.decode(errors="replace")):
                on_command(text)
            while data or (data := await channel.read()):
                pump.put(1, data)
                data = b""
            await pump.finish()
            code = await channel.exit_status()
        finally:
            pump.close()
            await channel.close()
    except TransportError as error:
        return FollowEnd(reason=error.message)
    reason = _REASONS.get(code or 0) or channel.error_tail() or "the process closed its output"
    return FollowEnd(reason=reason, last_wall_s=pump.last_wall_s)
