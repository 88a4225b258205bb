"""A login's own parts: the limit that stands still for a question, the agent, what is said of a way that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sparktop.model.fleet import Reach
from sparktop.transport.ssh.connector import SshConnector
from sparktop.transport.ssh.host_keys import SeenHosts
from sparktop.transport.ssh.login import Agent, Asker, Patience
from sparktop.transport.targets import parse_target


async def test_the_limit_stands_still_during_a_question_and_goes_on_afterwards() -> None:
    patience = Patience()
    async with asyncio.timeout(60.0) as limit:
        await asyncio.sleep(0)
        patience.bind(limit)
        until_s = limit.when()
        with patience.standing_still():
            assert limit.when() is None
        assert until_s is not None
        after_s = limit.when()
        assert after_s is not None
        assert until_s <= after_s < until_s + 30.0


async def test_without_a_limit_none_begins_after_a_question() -> None:
    patience = Patience()
    async with asyncio.timeout(None) as limit:
        await asyncio.sleep(0)
        patience.bind(limit)
        with patience.standing_still():
            pass
        assert limit.when() is None


async def test_an_agent_that_is_not_there_is_noted_and_gives_no_key(tmp_path: Path) -> None:
    asker = Asker(host="spark1", user="me", prompter=None, patience=Patience())
    assert await Agent().keys(str(tmp_path / "no agent"), asker) == []
    [tried] = asker.tried
    assert tried.startswith(f"agent at {tmp_path}/no agent (it can't be used: ")


async def test_a_way_whose_program_fails_is_told_with_its_words(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host spark1\n    ProxyCommand sh -c 'echo no way through >&2'\n")
    connector = SshConnector(parse_target("spark1"), prompter=None, seen=SeenHosts(), config=config)
    reach, sentence = await connector.reach()
    assert reach is Reach.UNTESTED
    assert sentence.startswith("no SSH through `sh -c")
    assert sentence.endswith(": no way through")


async def test_a_configuration_that_can_t_be_read_is_why_nothing_was_tested(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host spark1\n    NoSuchWord yes\n")
    connector = SshConnector(parse_target("spark1"), prompter=None, seen=SeenHosts(), config=config)
    reach, sentence = await connector.reach()
    assert reach is Reach.UNTESTED
    assert sentence.startswith("spark1: the ssh configuration can't be used: ")
