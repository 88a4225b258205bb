"""Questions on a plain terminal, or a refusal with directions where there is none."""

from __future__ import annotations

import asyncio
import getpass
import sys

from sparktop.transport.base import HostKeyQuestion, SecretQuestion


class TerminalPrompter:
    """Asks on standard error and reads the terminal; nothing of it reaches standard output, which is data."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """True when the operator typed yes; without a terminal False, with directions."""
        if not sys.stdin.isatty():
            _say(
                f"{question.host}: unknown host key {question.algorithm} {question.fingerprint}\n"
                f"  there is no terminal to ask on: connect once with `ssh {question.host}` and compare it"
            )
            return False
        lines = [f"{question.host} is not in {question.known_hosts_path}.", f"  {question.algorithm} key fingerprint"]
        lines.append(f"  {question.fingerprint}")
        if question.same_key_hosts:
            lines.append(f"  the same key as {', '.join(question.same_key_hosts)}: two units, or one?")
        async with self._one_at_a_time:
            answer = await asyncio.to_thread(_ask, "\n".join(lines) + "\nTrust it and write it down? (yes/no) ")
        return answer.strip().lower() == "yes"

    async def secret(self, question: SecretQuestion) -> str | None:
        """What was typed, unseen unless the server asks for an echo; None without a terminal."""
        if not sys.stdin.isatty():
            _say(
                f"{question.host} wants: {question.prompt}\n  there is no terminal to ask on: load a key into ssh-agent"
            )
            return None
        text = f"{question.host}: {question.prompt} "
        async with self._one_at_a_time:
            if question.echo:
                return await asyncio.to_thread(_ask, text)
            return await asyncio.to_thread(getpass.getpass, text, sys.stderr)


def _ask(text: str) -> str:
    sys.stderr.write(text)
    sys.stderr.flush()
    return sys.stdin.readline()


def _say(text: str) -> None:
    print(text, file=sys.stderr)
