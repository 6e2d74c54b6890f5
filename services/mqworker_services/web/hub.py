"""The hub: one reader for all viewers. It reads once a second while somebody watches, and not otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from mqworker.errors import MqworkerError, StoreUnavailable
from mqworker.operate.picture import Painter, Picture

EVERY_S = 1.0
MOST_BUSY = 10.0
"""A page that takes long to read is read more seldom: a tenth of the time goes into it, as a rule."""
LONGEST_S = 5.0


class Told(NamedTuple):
    """What a viewer is told: a picture, or that there is none to be had; then the one it has stays."""

    html: str | None
    outage: str | None = None


class Topic(NamedTuple):
    """What a viewer watches; viewers of the same one share each rendering."""

    path: str
    query: str
    root: str
    """Where the console is mounted."""
    role: int
    """What the viewer may see: arguments are hidden from some."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The last picture, how old it is, and why there is no newer one."""

    picture: Picture | None
    age_s: float = 0.0
    trouble: str | None = None


Render = Callable[[Topic], Awaitable[str]]
"""What is to be seen of a topic now; raises StoreUnavailable where nobody can know."""
TellOutage = Callable[[str, float | None], str]
"""What stands above the last picture: why there is no newer one, and how old it is, in seconds."""


class Gallery:
    """The newest picture; whoever asks within a second gets the same one."""

    def __init__(self, painter: Callable[[], Painter]) -> None:
        self._make_painter = painter
        self._painter: Painter | None = None
        self._lock = asyncio.Lock()
        self._picture: Picture | None = None
        self._painted_at_s = 0.0
        self._asked_at_s = float("-inf")
        self._trouble: str | None = None
        self.reads = 0
        """How often the server was asked, for tests and the curious."""

    async def current(self, *, at_most_s: float = EVERY_S) -> Moment:
        """The picture, read anew if it is older than that."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if loop.time() - self._asked_at_s >= at_most_s:
                await self._read()
                self._asked_at_s = loop.time()
        age_s = loop.time() - self._painted_at_s if self._picture is not None else 0.0
        return Moment(self._picture, age_s, self._trouble)

    def forget(self) -> None:
        """Somebody changed something: the next one who asks is shown what is so now."""
        self._asked_at_s = float("-inf")

    async def _read(self) -> None:
        self.reads += 1
        try:
            self._picture = await asyncio.to_thread(self._paint)
        except MqworkerError as error:
            self._trouble = str(error)
        else:
            self._trouble, self._painted_at_s = None, asyncio.get_running_loop().time()

    def _paint(self) -> Picture:
        if self._painter is None:
            self._painter = self._make_painter()
        return self._painter.paint()


@dataclass(eq=False, slots=True)
class Viewer:
    """One open tab: at most one text waits for it, the newest."""

    topic: Topic
    texts: asyncio.Queue[Told | None] = field(default_factory=lambda: asyncio.Queue(1))

    def offer(self, text: Told | None) -> None:
        """Give it this instead of what it has not taken yet."""
        with suppress(asyncio.QueueEmpty):
            self.texts.get_nowait()
        self.texts.put_nowait(text)


@dataclass(slots=True)
class Sheet:
    """The last text of a topic, when it was made, and when it is made anew."""

    text: str = ""
    made_at_s: float = 0.0
    due_at_s: float = 0.0


class Hub:
    """Renders each topic that is watched once, and tells every viewer of it."""

    def __init__(self, render: Render, tell_outage: TellOutage) -> None:
        self._render = render
        self._tell_outage = tell_outage
        self._viewers: set[Viewer] = set()
        self._sheets: dict[Topic, Sheet] = {}
        self._reader: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def viewers(self) -> int:
        """How many watch now."""
        return len(self._viewers)

    async def watch(self, topic: Topic) -> AsyncIterator[Told]:
        """What a viewer is to see, one picture after another, until the hub closes."""
        viewer = Viewer(topic)
        self._viewers.add(viewer)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_while_watched())
        try:
            while not self._is_closed and (text := await viewer.texts.get()) is not None:
                yield text
        finally:
            self._viewers.discard(viewer)

    def close(self) -> None:
        """Let all viewers go: a server that stops must not wait for open tabs."""
        self._is_closed = True
        for viewer in self._viewers:
            viewer.offer(None)

    async def _read_while_watched(self) -> None:
        while self._viewers and not self._is_closed:
            topics = {viewer.topic for viewer in self._viewers}
            self._sheets = {topic: self._sheets.get(topic, Sheet()) for topic in topics}
            for topic in topics:
                if self._sheets[topic].due_at_s <= asyncio.get_running_loop().time():
                    self._tell(topic, await self._text(topic))
            await asyncio.sleep(EVERY_S)

    async def _text(self, topic: Topic) -> Told:
        loop, sheet = asyncio.get_running_loop(), self._sheets[topic]
        began_at_s = loop.time()
        try:
            sheet.text = await self._render(topic)
        except StoreUnavailable as error:
            age_s = loop.time() - sheet.made_at_s if sheet.text else None
            return Told(sheet.text or None, self._tell_outage(str(error), age_s))
        sheet.made_at_s = loop.time()
        pause_s = min(LONGEST_S, MOST_BUSY * (sheet.made_at_s - began_at_s))
        sheet.due_at_s = sheet.made_at_s + pause_s - EVERY_S
        return Told(sheet.text)

    def _tell(self, topic: Topic, text: Told) -> None:
        for viewer in self._viewers:
            if viewer.topic == topic:
                viewer.offer(text)
