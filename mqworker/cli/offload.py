"""`mqworker offload`: look after large payloads that are kept elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from mqworker.cli.audited import audited
from mqworker.cli.server import REDIS_URL, Target
from mqworker.cli.text import counted
from mqworker.errors import ConfigurationError
from mqworker.model.clock import SystemClock
from mqworker.operate.system import System
from mqworker.tasks.loading import load_app
from mqworker.tasks.offload.places import Place
from mqworker.tasks.offload.sweep import Sweep
from mqworker.tasks.payloads import payloads_of

APP = click.option("--app", help="Module and name of an app whose offload=... counts, such as shop:app.")


@click.group("offload")
@REDIS_URL
@click.pass_context
def offload_command(context: click.Context, redis_url: str | None) -> None:
    """Look after large payloads that are kept elsewhere."""
    context.obj = Target(redis_url)


@offload_command.command("sweep")
@APP
@click.option("--grace", type=float, help="Seconds, in place of the setting offload_grace_s.")
@click.pass_obj
def sweep(target: Target, app: str | None, grace: float | None) -> None:
    """Remove payloads that nothing refers to any more.

    Nodes do this themselves where the setting `offload` is set. One goes only when nothing referred to it in
    two sweeps that lie the time of grace apart.
    """
    with target.open() as server, audited(server, "offload sweep") as doing:
        place = _place(server, app)
        done = Sweep(server.store, server.settings.namespace, place, server.open_queue, SystemClock()).run(
            grace
        )
        doing.tell(
            f"{counted(done.removed, 'payload')} removed; {done.needed:,} are needed, {done.suspected:,} are "
            f"not, and go if that is still so later; {done.young:,} are too young to be looked at",
            done.removed,
        )


def _place(server: System, app: str | None) -> Place:
    if app is not None:
        payloads = load_app(app, Path.cwd()).connections.payloads
    else:
        payloads = payloads_of(server.settings)
    if payloads is None or payloads.place is None:
        raise ConfigurationError(
            "offload is not set; accepted is MQWORKER_OFFLOAD, or --app with offload=..."
        )
    return payloads.place
