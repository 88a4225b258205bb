"""`sparktop expose`: prints a reverse proxy's configuration, installs it on a named host, or removes it."""

from __future__ import annotations

import sys

from sparktop.clock import Clock, SystemClock
from sparktop.headless.act import (
    MakeSession,
    OutputOptions,
    carry_out,
    check_links,
    put,
    refusal_page,
    tell_interrupted,
    watched,
)
from sparktop.headless.plan_data import refusal_data
from sparktop.headless.terminal import drawn, say, width_of
from sparktop.model.request import Request
from sparktop.operate.acts.checks import exposed_here
from sparktop.operate.runner.api import AskSecret
from sparktop.operate.serve.proxy import REMOVE
from sparktop.operate.serve.proxy_config import Proxy, Site, key_text, site_text
from sparktop.operate.serve.unit import PRINT
from sparktop.operate.step.plan import Refusal

SECRET = "YOUR-KEY"  # noqa: S105 - it stands for one


def print_site(site: Site, proxy: Proxy) -> int:
    """Print the configuration, and below it the file of its key."""
    folder = f"/etc/{proxy}/sparktop"
    print(site_text(site, proxy, folder), end="")
    say(f"\nand {folder}/{site.name}.key, mode 0600, with your key:")
    say(key_text(site, proxy, SECRET).rstrip())
    return 0


async def expose(
    make: MakeSession, request: Request, *, output: OutputOptions, secret: AskSecret, clock: Clock | None = None
) -> int:
    """Plan, ask and run, or print the file; the exit code: 0 printed or done, 1 refused or failed, 130 interrupted."""
    async with watched(make, output) as (watch, operating, _):
        check_links(watch.state)
        is_printed = request.options.get(PRINT) == "yes"
        if not is_printed:
            await tell_interrupted(operating, watch.state)
        answer = await operating.plan(request)
        if isinstance(answer, Refusal) and is_printed:
            say(drawn(refusal_page(answer)(width_of(sys.stderr)), sys.stderr))
            return 1
        if isinstance(answer, Refusal):
            put(output, refusal_page(answer), {"refusal": refusal_data(answer)})
            return 1
        if is_printed:
            print("".join(answer.files.values()), end="")
            return 0
        code = await carry_out(operating, answer, output, secret, clock or SystemClock())
        if code == 0 and not output.is_dry and request.options.get(REMOVE) != "yes":
            seen = await exposed_here(request.options["name"], int(request.options.get("listen") or 80), request.secret)
            say(f"from this machine: {seen.detail}")
            if not seen.ok:
                say("  that is its name's or its network's, if the check on its own host passed: DNS, a firewall")
        return code
