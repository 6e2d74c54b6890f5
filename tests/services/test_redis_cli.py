"""The client that everybody has: redis-cli speaks to the gateway as to any server."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from mqworker.queues.work.queue import WorkQueue

PROGRAM = shutil.which("redis-cli") or shutil.which("valkey-cli")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="redis-cli is not installed (Debian: redis-tools)")


def typed(port: int, *lines: str, options: tuple[str, ...] = ()) -> str:
    """What redis-cli prints for lines typed into it."""
    done = subprocess.run(
        [str(PROGRAM), "-p", str(port), "--no-raw", *options],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-3",)])
def test_the_five_commands_typed_by_hand(
    redismq_port: int, queue: WorkQueue, options: tuple[str, ...]
) -> None:
    shown = typed(
        redismq_port,
        "PING",
        f'MQ.PUSH {queue.name} "a b" c',
        f"MQ.POP 1 {queue.name}",
        f"MQ.POP 1 BLOCK 20 {queue.name}.nobody",
        f"MQ.INSPECT {queue.name} PENDING 0 9",
        f"MQ.ACK {queue.name} 1-1",
        f"MQ.INSPECT {queue.name} 0 0",
        options=options,
    )

    assert shown.startswith("PONG\n1) ")
    assert '2) "a b"' in shown
    assert "(nil)" in shown
    assert "(integer) 1" in shown
    assert "(empty array)" in shown
    assert "(error) ERR usage: MQ.INSPECT" in shown
    assert [element for _, element in queue.inspect(0, 9)] == [b"c"]
