"""Faults at random moments of each action, on a real sshd and Docker Engine: python -m tests.faults [--trials N].

The verdict goes by what Docker says at the end. Each trial is played again by its seed, at its share of the plan's
steps; it needs root, dockerd and sshd, as the tests in tests/integration do. A trial mostly waits: start several at
a time, with other seeds; each has a network of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest
from tests.bench.lab import end_by_signals, enter_own_network
from tests.faults.draw import ACTIONS, FAULTS, LONG_FAULTS, Trial, drawn
from tests.faults.play import play
from tests.integration.spark import Spark
from tests.support import other_docker

TAIL_LINES = 60
"""Of what was said, after a trial with a lie."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, help="of the first trial; the others have the next ones")
    parser.add_argument("--action", choices=ACTIONS)
    parser.add_argument("--fault", choices=(*FAULTS, *LONG_FAULTS))
    parser.add_argument("--nodes", type=int, choices=(1, 2))
    parser.add_argument("--long", action="store_true", help="the link is down for 40 s, too")
    parser.add_argument("--verbose", action="store_true", help="all that was said in every trial")
    options = parser.parse_args()
    enter_own_network("tests.faults", "--mount", "--propagation", "private")
    end_by_signals()
    os.environ["SPARKTOP_REQUIRE_INTEGRATION"] = "1"  # what is missing is a failure
    os.environ.update(other_docker())
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    trials = [
        drawn(
            seed + number,
            actions=(options.action,) if options.action else ACTIONS,
            faults=(options.fault,) if options.fault else (*FAULTS, *(LONG_FAULTS if options.long else ())),
            nodes=(options.nodes,) if options.nodes else (1, 2),
        )
        for number in range(options.trials)
    ]
    good = 0
    waiting = list(enumerate(trials, 1))
    with tempfile.TemporaryDirectory(prefix="spk-faults-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        while waiting:
            left = len(waiting)
            home = folder / f"home-{waiting[0][0]}"
            home.mkdir()
            _lives_in(home)
            try:
                with Spark.start("spark1", "127.0.0.2") as one, Spark.start("spark2", "127.0.0.3") as two:
                    for spark in (one, two):
                        spark.sshd.trust()
                        spark.sshd.alias(spark.name)
                    good += _played(waiting, (one, two), folder, of=len(trials), verbose=options.verbose)
            except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                print(f"Sparks that did not come, or go: {error or type(error).__name__}", flush=True)
                traceback.print_exc()
                if len(waiting) == left:
                    break  # they never came
    print(f"{good} of {len(trials)}")
    return 0 if good == len(trials) else 1


def _played(
    waiting: list[tuple[int, Trial]], sparks: tuple[Spark, Spark], folder: Path, *, of: int, verbose: bool
) -> int:
    """Play what waits, until one can't be played: the next ones have Sparks of their own. How many were true."""
    good = 0
    while waiting:
        number, trial = waiting.pop(0)
        started_s = time.monotonic()
        head = f"{number}/{of} seed {trial.seed}: {trial.action} on {trial.nodes}, {trial.fault}"
        try:
            played = play(trial, sparks, folder / str(number))
        except (Exception, pytest.fail.Exception) as error:
            print(f"{head}: NOT PLAYED: {error or type(error).__name__}", flush=True)
            traceback.print_exc()
            return good
        truth = "; ".join(played.wrong) or "true"
        spent_s = time.monotonic() - started_s
        print(f"{head} at {played.moment}: told {played.told}: {truth} ({spent_s:.0f} s)", flush=True)
        if played.wrong or verbose:
            lines = played.said.splitlines()[0 if verbose else -TAIL_LINES :]
            print("".join(f"    {line}\n" for line in lines), end="")
        if played.wrong:
            print(f"    again: make faults ARGS='--trials 1 {trial.words}'", flush=True)
        good += not played.wrong
    return good


def _lives_in(home: Path) -> None:
    os.environ.update(
        HOME=str(home), XDG_CONFIG_HOME=str(home / ".config"), XDG_STATE_HOME=str(home / "state"), LC_ALL="C.UTF-8"
    )
    os.environ.pop("SSH_AUTH_SOCK", None)


if __name__ == "__main__":
    sys.exit(main())
