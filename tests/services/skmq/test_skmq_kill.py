"""SIGKILL in the middle of ten thousand messages: none is lost, and none is pushed again after its ack."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from tests.services.skmq.plain_sockets import END, fields_of, frame
from tests.services.skmq.skmq_node import SkmqNode
from tests.support.real_server import RealServer

MESSAGES = 10_000
CONNECTIONS = 10
WINDOW = 50
DEADLINE_S = 240.0
APP = "under-kill"
MARKER = b"a mark in the order of connections"


class Producers:
    """Send every number until it is answered; after a lost connection what was unanswered is sent again."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.answered: set[str] = set()

    async def run(self) -> None:
        numbers = [str(number) for number in range(MESSAGES)]
        await asyncio.gather(*(self._run_one(numbers[part::CONNECTIONS]) for part in range(CONNECTIONS)))

    async def _run_one(self, msgids: Sequence[str]) -> None:
        while left := [msgid for msgid in msgids if msgid not in self.answered]:
            try:
                await self._send(left)
            except OSError:
                await asyncio.sleep(0.05)  # the gateway is away

    async def _send(self, msgids: Sequence[str]) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            for start in range(0, len(msgids), WINDOW):
                some = msgids[start : start + WINDOW]
                writer.write(b"".join(frame(type="queue", appid=APP, msgid=m, content=m) for m in some))
                for msgid in some:
                    reply = await _read(reader)
                    if b'"status":"ack"' not in reply:
                        return  # unanswered or rejected: once more, on a new connection
                    self.answered.add(msgid)
        finally:
            writer.close()


class Recipient:
    """Acknowledges every push until that is confirmed: on a new connection, if the first one was lost.

    A push may be on its way while its message is acknowledged on another connection: it was sent before, lies
    in a buffer, and is read afterwards. So a message counts as confirmed when everything was read that had
    been sent by then; a push that is read after that was sent to somebody who had been told `ack`.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.port = 0
        """Where it listens."""
        self.pushes: Counter[str] = Counter()
        self.confirmed: set[str] = set()
        self.pushed_after_ack: list[str] = []
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._progress = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)  # nobody else holds it: streams know their readers by weak references
        try:
            text = await _read(reader)
            if text == b"ping":
                writer.write(b"pong" + END)
            elif text and text != MARKER:
                await self._take(fields_of(text)["msgid"].decode(), reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _take(self, msgid: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pushes[msgid] += 1
        if msgid in self.confirmed:
            self.pushed_after_ack.append(msgid)
        writer.write(frame(type="ack", msgid=msgid))
        while not await _is_confirmed(reader):
            writer.close()
            reader, writer = await self._connect()
            writer.write(frame(type="ack", msgid=msgid))
        writer.close()
        await self._read_what_was_sent()
        self.confirmed.add(msgid)
        self._progress.set()

    async def _read_what_was_sent(self) -> None:
        """Until now: connections are accepted in their order, so ours is served after those before it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(MARKER + END)
        await reader.read()  # to its end
        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            try:
                return await asyncio.open_connection(*self._address)
            except OSError:
                await asyncio.sleep(0.05)  # the gateway is away

    async def reach(self, count: int) -> None:
        """Wait until so many acks were confirmed."""
        while len(self.confirmed) < count:
            self._progress.clear()
            await self._progress.wait()


async def _is_confirmed(reader: asyncio.StreamReader) -> bool:
    try:
        return b'"status":"ack"' in await _read(reader)
    except OSError:
        return False  # the gateway was killed


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return (await reader.readuntil(END)).removesuffix(END)
    except asyncio.IncompleteReadError:
        return b""


async def keep_registered(node: SkmqNode, port: int) -> None:
    """As a careful consumer does: one that was too busy to answer is lost until it registers again."""
    about = {"id": "r", "app_id": APP, "host": "127.0.0.1", "port": str(port)}
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(*node.address)
            try:
                writer.write(frame(type="register", content=json.dumps(about)))
                await _read(reader)
            finally:
                writer.close()
        await asyncio.sleep(2)


async def scenario(node: SkmqNode) -> tuple[Producers, Recipient]:
    producers, recipient = Producers(node.address), Recipient(node.address)
    listening = await asyncio.start_server(recipient.serve, "127.0.0.1", 0, backlog=1_024)
    recipient.port = listening.sockets[0].getsockname()[1]
    registration = asyncio.create_task(keep_registered(node, recipient.port))

    async def kill_one_after_another() -> None:
        for number, child in enumerate(("gateway:skmq", "broker", "dispatcher", "gateway:skmq"), start=1):
            await recipient.reach(number * MESSAGES // 6)
            await asyncio.to_thread(node.kill, child)

    async with asyncio.timeout(DEADLINE_S), listening:
        await asyncio.gather(producers.run(), kill_one_after_another(), recipient.reach(MESSAGES))
    registration.cancel()
    await asyncio.wait([registration])
    await asyncio.sleep(0)  # a closed stream is gone one turn of the loop later
    return producers, recipient


def test_killed_processes_lose_nothing_and_repeat_nothing_acknowledged(server: RealServer) -> None:
    options = {"retry_times": 900, "retry_delay": 100, "ack_timeout": 60_000, "concurrency": 200}
    with SkmqNode(server.url, namespace="kill", **options) as node:
        producers, recipient = asyncio.run(scenario(node))

    assert len(producers.answered) == MESSAGES
    assert len(recipient.confirmed) == MESSAGES
    assert recipient.pushed_after_ack == []
