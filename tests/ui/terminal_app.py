"""Run in a pseudo-terminal by test_notify: the console with a new critical finding, told through every channel."""

from __future__ import annotations

import sys
from dataclasses import replace

from tests.ui import claims, pictures
from tests.ui.look import clock_of_pictures

from sparktop import sanitise
from sparktop.model.fleet import FleetState
from sparktop.observe.watch import Publish
from sparktop.ui.app import SparktopApp
from sparktop.ui.notify import NotifyOptions
from sparktop.ui.setup import Setup

NASTY = "a; b \x07\x1b]52;c;UFdORUQ=\x07 \x9d0;x\x9c"


def main() -> int:
    clock = clock_of_pictures()
    state = replace(pictures.idle(clock), rules_watching=58)
    watch = pictures.FakeWatch(state)

    async def start(publish: Publish, prompter: object) -> pictures.FakeWatch:
        publish(state)
        return watch

    def worse() -> None:
        app.publish(
            FleetState(nodes=state.nodes, findings=(replace(claims.spin(clock.wall()), title=sanitise.line(NASTY)),))
        )

    app = SparktopApp(
        Setup(start=start, node_names=("spark1", "spark2"), clock=clock),
        notifying=NotifyOptions(channels=("bell", "title", "osc9", "osc777")),
    )
    app.call_later(lambda: app.set_timer(0.5, worse))
    app.call_later(lambda: app.set_timer(1.5, app.exit))
    app.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
