"""`mqworker redis`: the embedded server in the foreground, one line of a Procfile.

It ends the server on the first TERM or INT and exits with 0, unless another mqworker process still uses it.
When the server ends, it exits with the server's status, so that the Procfile runner notices.
"""

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from mqworker.settings import Settings, load_settings
from mqworker.store.embedded.share import EmbeddedServer, stop_server

# What a shell reports for a process that signal n ended is 128 + n.
_SIGNAL_EXIT_CODE = 128


@click.command("redis")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the data is.  [default: .mqworker]")
@click.option(
    "--stop", "is_stop", is_flag=True, help="End the server that runs for this directory, then exit."
)
def redis_command(data_dir: Path | None, is_stop: bool) -> None:  # noqa: FBT001 - how click passes a flag
    """Run the embedded server alone, for a Procfile.

    Every command and task started in the same directory finds it. If a server runs here already, it is
    shared. Ctrl-C or TERM ends the server, unless another mqworker process in this directory still uses it or
    a program started it in the background; --stop ends that one, too.
    """
    settings = load_settings(flags={"data_dir": data_dir})
    if is_stop:
        _stop(settings)
    else:
        _run(settings)


class StopRequested(BaseException):
    """TERM or INT arrived: not an error, and nothing that catches errors may swallow it."""


def _stop(settings: Settings) -> None:
    if stop_server(settings.data_dir):
        click.echo(f"the embedded server of {settings.data_dir} has ended")
    else:
        click.echo(f"no embedded server is running for {settings.data_dir}")


def _run(settings: Settings) -> None:
    if settings.redis_url is not None:
        click.echo("note: redis_url is set, so other commands use that server and not this one", err=True)
    server = EmbeddedServer(settings.data_dir)
    with _stop_signals():
        try:
            url = server.start()
            click.echo(_greeting(server, url))
            status = server.wait()
        except StopRequested:
            _leave(server)
            return
    click.echo(f"mqworker: the embedded server ended ({_told(status)}), see {server.log_path}", err=True)
    click.get_current_context().exit(_exit_code_of(status))


def _greeting(server: EmbeddedServer, url: str) -> str:
    verb = (
        "the embedded server listens on" if server.is_starter else "shares the server that already listens on"
    )
    return (
        f"{verb} {url}; found by everything in this directory, elsewhere set MQWORKER_REDIS_URL to it; "
        f"by hand: redis-cli -s {shlex.quote(str(server.socket_path))}"
    )


def _leave(server: EmbeddedServer) -> None:
    if server.stop():
        click.echo("the embedded server has ended, its data is on disk")
    else:
        click.echo(
            "the embedded server runs on: another mqworker process uses it, or it was started in the "
            "background; `mqworker redis --stop` ends it"
        )


def _told(status: int | None) -> str:
    if status is None:
        return "it was started by another process, so its exit status is unknown"
    return f"exit status {status}" if status >= 0 else f"by signal {-status}"


def _exit_code_of(status: int | None) -> int:
    if status is None:
        return 1
    return status if status >= 0 else _SIGNAL_EXIT_CODE - status


@contextmanager
def _stop_signals() -> Iterator[None]:
    """The first TERM or INT raises StopRequested; later ones do not disturb the stop that is under way."""
    arrived: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)
        if len(arrived) == 1:
            raise StopRequested

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
