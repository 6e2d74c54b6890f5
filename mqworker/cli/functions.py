"""`mqworker functions`: the RedisMQ verbs as functions inside the server, for clients that can only FCALL."""

from __future__ import annotations

from contextlib import closing

import click

from mqworker.cli.audited import audited
from mqworker.cli.connect import connect
from mqworker.cli.server import REDIS_URL
from mqworker.cli.text import counted, safe
from mqworker.operate.system import System
from mqworker.queues.work import functions
from mqworker.settings import load_settings


@click.group("functions")
def functions_command() -> None:
    """Put the RedisMQ verbs into the server, as functions.

    For clients that can only FCALL: FCALL mq_push 1 key element.
    """


@functions_command.command("install")
@REDIS_URL
def install_command(redis_url: str | None) -> None:
    """Load the functions, over older ones.

    Do so again after every upgrade of mqworker.
    """
    settings = load_settings({"redis_url": redis_url})
    window_ms = int(settings.dedup_window_s * 1000)
    source = functions.library_source(settings.namespace, settings.events_kept, window_ms)
    with closing(connect(settings)) as store, audited(System(settings, store), "functions install") as doing:
        servers = functions.install(store.connection, source)
        doing.tell(f"installed on {counted(servers, 'server')}; try: FCALL mq_push 1 mail hello", servers)


@functions_command.command("list")
@REDIS_URL
def list_command(redis_url: str | None) -> None:
    """Show which functions are there."""
    store = connect(load_settings({"redis_url": redis_url}))
    for server, names in functions.installed(store.connection).items():
        click.echo(f"{safe(server)}: {', '.join(map(safe, names)) or 'none; see mqworker functions install'}")
    store.close()


@functions_command.command("remove")
@REDIS_URL
def remove_command(redis_url: str | None) -> None:
    """Take the functions out of the server; queues and messages stay."""
    settings = load_settings({"redis_url": redis_url})
    with closing(connect(settings)) as store, audited(System(settings, store), "functions remove") as doing:
        servers = functions.remove(store.connection)
        doing.tell(f"removed from {counted(servers, 'server')}" if servers else "there were none", servers)
