"""`mqworker status`: one screen, from Redis alone; the exit code says healthy, degraded, down or no Redis.

It imports neither the application nor the queue models: most of its time is the start of Python.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import click

from mqworker.cli.server import JSON
from mqworker.cli.status.screen import outage_screen, screen
from mqworker.cli.terminal import terminal_height, terminal_width
from mqworker.errors import StoreRefused, StoreUnavailable
from mqworker.model.throughput import Sample, Throughput
from mqworker.model.verdict import judge
from mqworker.model.view import SystemView
from mqworker.operate.server_url import server_url
from mqworker.operate.status_document import document, outage_document
from mqworker.queues.work.snapshots import Reader, read_system
from mqworker.settings import Settings, load_settings
from mqworker.store.link.address import parse_address
from mqworker.store.link.quick_look import NoQuickLook, QuickLook

EXIT_NO_REDIS = 3

_WATCH_EVERY_S = 1.0

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"


@click.command("status")
@JSON
@click.option("--watch", "is_watch", is_flag=True, help="Again every second, until Ctrl-C.")
@click.option("-r", "--redis-url", help="Server to ask.  [default: as configured, else the embedded one]")
@click.pass_context
def status_command(
    context: click.Context,
    is_json: bool,  # noqa: FBT001 - how click passes a flag
    is_watch: bool,  # noqa: FBT001 - same
    redis_url: str | None,
) -> None:
    """Show how everything is, on one screen.

    A verdict, the server, the nodes with their actors and workers, the queues and the totals. Exit code 0:
    healthy, 1: degraded, 2: down, no node beats, 3: no Redis.
    """
    settings = load_settings(flags={"redis_url": redis_url})
    with closing(Look(settings, _as_json if is_json else _as_screen)) as look:
        if not is_watch:
            text, exit_code = look.take()
            click.echo(text)
        elif is_json or not sys.stdout.isatty():
            exit_code = _follow_plainly(look)
        else:
            exit_code = _follow_on_terminal(look)
    context.exit(exit_code)


Outage = StoreUnavailable | StoreRefused
Show = Callable[[SystemView | Outage], str]


class Look:
    """One look after another at the same server; an outage is something to see, too."""

    def __init__(self, settings: Settings, show: Show) -> None:
        self._settings = settings
        self._show = show
        self._reader: Reader | None = None
        self._earlier: SystemView | None = None

    def take(self) -> tuple[str, int]:
        """The text to show now, and the exit code that goes with it."""
        try:
            view = self._read()
        except (StoreUnavailable, StoreRefused) as error:
            return self._show(error), EXIT_NO_REDIS
        view, self._earlier = _with_own_rates(view, self._earlier), view
        return self._show(view), judge(view).health.exit_code

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._reader is not None:
            self._reader.close()

    def _read(self) -> SystemView:
        namespace = self._settings.namespace
        try:
            self._reader = self._reader or _quick_look(self._settings)
            return read_system(self._reader, namespace, is_brief=True)
        except NoQuickLook:
            # Not a plain server, or in trouble: the full store copes with it, or says what is wrong.
            self._reader = _full_store(self._settings)
            return read_system(self._reader, namespace, is_brief=True)


def _quick_look(settings: Settings) -> Reader:
    return QuickLook(
        parse_address(server_url(settings)),
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
    )


def _full_store(settings: Settings) -> Reader:
    from mqworker.cli.connect import connect  # noqa: PLC0415 - takes longer than all the rest

    return connect(settings, retry_for_ms=0)


def _with_own_rates(view: SystemView, earlier: SystemView | None) -> SystemView:
    """Where no node keeps samples, two looks of our own tell the rates."""
    if earlier is None:
        return view
    samples = {queue.name: Sample.of(earlier.at_ms, queue.totals) for queue in earlier.queues}
    queues = tuple(
        replace(
            queue, throughput=Throughput.between(samples[queue.name], Sample.of(view.at_ms, queue.totals))
        )
        if queue.throughput is None and queue.name in samples
        else queue
        for queue in view.queues
    )
    return replace(view, queues=queues)


def _as_json(seen: SystemView | Outage) -> str:
    found = outage_document(seen) if isinstance(seen, Outage) else document(seen)
    return json.dumps(found)


def _as_screen(seen: SystemView | Outage) -> str:
    width = terminal_width()
    text = "\n".join(outage_screen(seen, width) if isinstance(seen, Outage) else screen(seen, width))
    # Here and not by `echo`: a screen that is drawn over is written with controls that must stay.
    return click.unstyle(text) if click.get_current_context().color is False else text


def _follow_plainly(look: Look) -> int:
    exit_code = 0
    try:
        while True:
            text, exit_code = look.take()
            click.echo(text)
            time.sleep(_WATCH_EVERY_S)
    except KeyboardInterrupt:
        return exit_code


def _follow_on_terminal(look: Look) -> int:
    text, exit_code = look.take()
    try:
        with _second_screen():
            while True:
                _redraw(text)
                time.sleep(_WATCH_EVERY_S)
                text, exit_code = look.take()
    except KeyboardInterrupt:
        click.echo(text)  # what was seen last stays to be read
        return exit_code


@contextmanager
def _second_screen() -> Iterator[None]:
    """What stood on the terminal before comes back afterwards."""
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _redraw(text: str) -> None:
    """Overwrite line by line in one write: nothing is cleared before it is drawn, so nothing flickers."""
    height = terminal_height()
    lines = text.split("\n")
    if len(lines) > height:
        hint = f"… {len(lines) - height + 1} more lines; `mqworker status` shows all"
        lines = [*lines[: height - 1], click.style(hint, dim=True)]
    sys.stdout.write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
    sys.stdout.flush()
