"""The runner: carries out operations on a Spark, for a console that is connected to it.

A second small process beside the probe, started while the host is well, because an open channel outlives the ability
to open one (design.md). Python 3.10+ and the standard library alone; it imports nothing of ours, and travels as the
probe does (`probe.runnerbundle`). It sleeps in one poll. Whatever takes time happens in children: a question's ends
with the runner, a step's goes on without it (`runner_step`), and what it did stands in its journal (`runner_journal`).
The runner leaves when its input closes, when it heard nothing for LEASE_S, or when a newer one of the same console
asks it to.

The protocol, version 1: one JSON object a line, each way. Before its first line the runner prints `SPARKTOP <nonce>`.

To the runner (`id` is a number of the console's choice that the replies repeat; unknown words are ignored):

    {"beat": 1}                        every 3 s
    {"id", "privileges": 1}            what this user may do here
    {"id", "lock": {who, what, key}}   take the node; `key` is the console's own: its own older runner gives way to it
    {"id", "unlock": 1}
    {"id", "step": {run, step, operations [...], undo [...], limit}}     limit: seconds for the operations together
    {"id", "outcome": {run, step}}     what became of a step; one that was never begun is barred from beginning through
                                       any runner that is older than this one
    {"id", "get": {path, limit}}       GET of the Docker Engine ("?query" included); limit: bytes
    {"id", "output": {argv, seconds, limit, from_end}}                   standard output of a harmless command
    {"id", "file": {path, limit, from_end}}                              a file's text; from_end: its last bytes
    {"id", "secret": "..." | null}     the password that the step of this id asked for; null: the operator gave up
    {"bye": 1}                         leave now

An operation is one of (seconds and exit codes are numbers; what is left out is empty):

    {"do": "command", argv [...], root, limit, accepts [...], environment {}, content, done_when {command}}
    {"do": "docker", method, path, query {}, body {} | null, accepts [...], saves, limit, done_when {expect}}
    {"do": "expect", path, equals {dotted path: value}, otherwise, within}

From the runner (`kind` says which):

    hello       protocol, pid, boot (boot id), uid, user, digest, problem (why no step can be begun here; else "")
    privileges  id, is_root, user, docker (open, denied, missing), sudo (free, listed, password, missing, denied, tty),
                sudo_rules [...], has_compose (true, false, null)
    lock        id, held; where it isn't: who, what, since (wall seconds or null), own (an older step of this console)
    unlocked    id
    result      id, index, undo, ok, code (exit code, HTTP status or null), output, problem, seconds, was_done: one
                operation has ended; output and problem are masked, output is the last 4 KiB
    ask secret  id, wrong: sudo asks for the password of a step's operation; so many were wrong so far
    outcome     id, state (done, failed, running, never begun, gone), results [as in result, without id], problem,
                undone (true, false, null), saved {name: id}
                for `step` when it has ended, or at once where it had been begun before; for `outcome` at once
    chunk       id, text: a piece of an answer, at most 32 KiB of the original
    answer      id, found (false: it isn't there), code (exit code or HTTP status), problem, cut (there was more);
                after all its chunks
    refused     id, problem: the request could not be carried out, and nothing was done
    bye         reason
"""

from __future__ import annotations

PROTOCOL = 1
LEASE_S = 30.0
