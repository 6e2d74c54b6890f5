"""One reader for all viewers, none without a viewer, and a slow one costs nobody anything."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, cast

from mqworker.errors import StoreUnavailable
from mqworker.operate.picture import Painter
from mqworker_services.web import hub as hub_module
from mqworker_services.web.hub import Gallery, Hub, Moment, Told, Topic

OVERVIEW = Topic("/", "", "", 1)


class CountingPainter:
    """Paints numbers; fails while it is told to."""

    def __init__(self) -> None:
        self.painted = 0
        self.is_away = False

    def paint(self) -> int:
        if self.is_away:
            raise StoreUnavailable("gone")
        self.painted += 1
        return self.painted


def a_hub(painter: CountingPainter) -> tuple[Hub, Gallery]:
    # A cast: a picture is whatever the painter makes; the hub only passes it on.
    gallery = Gallery(lambda: cast("Painter", painter))

    async def render(_: Topic) -> str:
        moment = await gallery.current(at_most_s=0)
        return f"{moment.picture} {moment.trouble}"

    return Hub(render, lambda trouble, age_s: f"{trouble} {age_s}"), gallery


async def texts(hub: Hub, count: int) -> list[Told]:
    seen = []
    async with aclosing(cast("Any", hub.watch(OVERVIEW))) as stream:
        async for text in stream:
            seen.append(text)
            if len(seen) == count:
                break
    return seen


def test_twenty_viewers_cost_what_one_does(monkeypatch: Any) -> None:  # noqa: ANN401 - pytest's own
    monkeypatch.setattr(hub_module, "EVERY_S", 0.05)
    painter = CountingPainter()

    async def run() -> int:
        hub, gallery = a_hub(painter)
        await asyncio.gather(*[texts(hub, 3) for _ in range(20)])
        assert hub.viewers == 0
        return gallery.reads

    assert asyncio.run(run()) <= 5


def test_nobody_reads_when_nobody_watches(monkeypatch: Any) -> None:  # noqa: ANN401 - pytest's own
    monkeypatch.setattr(hub_module, "EVERY_S", 0.02)
    painter = CountingPainter()

    async def run() -> None:
        hub, _ = a_hub(painter)
        await texts(hub, 1)
        reader = hub._reader
        assert reader is not None
        await asyncio.wait_for(reader, 2)  # it ends by itself

    asyncio.run(run())


def test_a_slow_viewer_gets_the_newest_and_keeps_nothing_waiting(monkeypatch: Any) -> None:  # noqa: ANN401 - pytest's own
    monkeypatch.setattr(hub_module, "EVERY_S", 0.01)
    painter = CountingPainter()

    async def run() -> list[Told]:
        hub, gallery = a_hub(painter)
        stream = hub.watch(OVERVIEW)
        first = await anext(stream)
        while gallery.reads < 6:  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0)
        viewer = next(iter(hub._viewers))
        assert viewer.texts.qsize() <= 1
        second = await anext(stream)
        await cast("Any", stream).aclose()
        return [first, second]

    first, second = asyncio.run(run())
    assert int(str(second.html).split()[0]) > int(str(first.html).split()[0]) + 1


def test_while_the_store_is_away_the_last_picture_stays(monkeypatch: Any) -> None:  # noqa: ANN401 - pytest's own
    monkeypatch.setattr(hub_module, "EVERY_S", 0.0)
    painter = CountingPainter()

    async def run() -> Moment:
        _, gallery = a_hub(painter)
        await gallery.current(at_most_s=0)
        painter.is_away = True
        return await gallery.current(at_most_s=0)

    moment = asyncio.run(run())
    assert (moment.picture, moment.trouble) == (1, "gone")


def test_closing_lets_every_viewer_go() -> None:
    async def run() -> list[Told]:
        hub, _ = a_hub(CountingPainter())
        watching = asyncio.create_task(texts(hub, 1_000))
        while not hub.viewers:  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0)
        hub.close()
        return await asyncio.wait_for(watching, 5)

    assert len(asyncio.run(run())) <= 1


def test_a_page_that_cannot_be_read_any_more_stays_as_it_was_with_its_age(monkeypatch: Any) -> None:  # noqa: ANN401 - pytest's own
    monkeypatch.setattr(hub_module, "EVERY_S", 0.0)
    answers = iter(["first", StoreUnavailable("gone"), "second"])

    async def render(_: Topic) -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    hub = Hub(render, lambda trouble, age_s: f"{trouble}, {age_s is not None}")
    told = asyncio.run(texts(hub, 3))

    assert told == [Told("first"), Told("first", "gone, True"), Told("second")]


def test_a_page_that_was_never_read_leaves_the_viewer_what_it_has(monkeypatch: Any) -> None:  # noqa: ANN401 - pytest's own
    monkeypatch.setattr(hub_module, "EVERY_S", 0.0)

    async def render(_: Topic) -> str:
        raise StoreUnavailable("gone")

    hub = Hub(render, lambda trouble, age_s: f"{trouble}, {age_s}")

    assert asyncio.run(texts(hub, 1)) == [Told(None, "gone, None")]


def test_a_page_that_takes_long_to_read_is_read_more_seldom(monkeypatch: Any) -> None:  # noqa: ANN401 - pytest's own
    monkeypatch.setattr(hub_module, "EVERY_S", 0.01)
    slow, quick = Topic("/dead", "", "", 1), Topic("/", "", "", 1)
    read: list[Topic] = []

    async def render(topic: Topic) -> str:
        read.append(topic)
        await asyncio.sleep(0.05 if topic == slow else 0)
        return topic.path

    async def run() -> None:
        hub = Hub(render, lambda trouble, _: trouble)
        beside = asyncio.create_task(anext(hub.watch(slow)))
        async with aclosing(cast("Any", hub.watch(quick))) as stream:
            for _ in range(10):
                await anext(stream)
        await beside

    asyncio.run(run())
    assert read.count(slow) <= 2
    assert read.count(quick) >= 10
