"""`mqworker run`: a node in the foreground, from its first actor to the end of its drain."""

import os
import re
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click

from mqworker.actors.gateway.settings import gateway_names, options_of
from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.log import configure_logging, get_logger
from mqworker.model.clock import SystemClock
from mqworker.settings import Settings, load_settings, refuse_embedded, systemd_notify_socket
from mqworker.supervisor.child_care import Limits
from mqworker.supervisor.child_plan import Topology
from mqworker.supervisor.children import ChildRecord
from mqworker.supervisor.node import make_node
from mqworker.supervisor.process_title import set_title
from mqworker.supervisor.source_watch import SourceWatch, watch_application
from mqworker.supervisor.supervisor import Supervisor
from mqworker.supervisor.systemd import SystemdNotifier
from mqworker.supervisor.topology import CONSOLE, MONITOR, SERVER_KEEPER, node_topology
from mqworker.supervisor.web_child import check_installed

_APP = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")
_PRIVATE = 0o700


@click.command("run")
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("--workers", help="Processes that run tasks.  [default: one for each core]")
@click.option("--threads", help="Sync tasks at once in each worker.  [default: 1]")
@click.option("--concurrency", help="Async tasks at once in each worker.  [default: 100]")
@click.option("--queues", help="Only these queues, with commas between.  [default: all of the app]")
@click.option("--gateway", "gateways", multiple=True, help="Also start this one: name or name=host:port.")
@click.option(
    "--web", is_flag=False, flag_value="127.0.0.1:8780", help="Also serve the console.  [127.0.0.1:8780]"
)
@click.option("--http", help="Answer probes and metrics there: host:port, such as 127.0.0.1:9464.")
@click.option("--max-tasks", help="Replace a worker after so many tasks.")
@click.option("--max-memory-bytes", help="Replace a worker that grew larger than this.")
@click.option("--drain-s", help="Seconds to finish running tasks at a stop.  [default: by surroundings]")
@click.option("--redis-url", help="The server to use.  [default: an embedded one]")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where files go.  [default: .mqworker]")
@click.option("--node", help="The name of this node.  [default: made from host and process]")
@click.option("--log-level", help="debug, info, warning or error.  [default: info]")
@click.option("--log-format", help="auto, json or console.  [default: auto]")
@click.option(
    "--reload", "is_reload", is_flag=True, help="For development: restart the workers when a file changes."
)
# Flags are named as the settings; their values are checked there.
def run_command(app: str | None, is_reload: bool, **flags: str | Path | None) -> None:  # noqa: FBT001 - click
    """Run tasks: the supervisor, its actors and workers, until TERM or Ctrl-C.

    MODULE:APP names the application, such as shop.tasks:app. The first TERM or Ctrl-C lets running tasks
    finish, the second ends them (they run again later), the third ends everything. HUP replaces the workers
    one after the other, USR1 logs the state and all stacks.
    """
    if app is not None and not _APP.fullmatch(app):
        raise InvalidArgument(f"app is {app!r}; accepted is module:attribute, such as shop.tasks:app")
    settings = load_settings(flags)
    configure_logging(settings.log_level, settings.log_format)
    click.get_current_context().exit(run_node(settings, app, source_watch=_watch(app) if is_reload else None))


def run_node(
    settings: Settings,
    app: str | None,
    *,
    source_watch: SourceWatch | None = None,
    limits: Limits | None = None,
    workers: int | None = None,
) -> int:
    """Run a node until it is stopped; the exit code. Drills, which kill a lot, pass other limits."""
    log = get_logger(actor="supervisor")
    directory = _directory(settings)
    set_title("supervisor", app)
    supervisor = Supervisor(
        _topology(settings, (settings.workers or _cores()) if workers is None else workers),
        make_node(settings, app, directory),
        directory,
        clock=SystemClock(),
        log=log,
        limits=limits,
        notifier=SystemdNotifier(systemd_notify_socket()),
        source_watch=source_watch,
        on_ready=_announcer(settings),
    )
    exit_code = supervisor.run()
    if supervisor.halt is not None:
        click.echo(f"mqworker: {supervisor.halt.reason}", err=True)
    return exit_code


def _topology(settings: Settings, workers: int) -> Topology:
    gateways = gateway_names(settings)
    for name in gateways:
        options_of(settings, name)  # raises ConfigurationError before anything starts
    if settings.otel != "off":
        from mqworker.tasks.tracing.application_spans import import_sdk  # noqa: PLC0415 - only then

        import_sdk()
    topology = node_topology(
        workers, gateways, has_exporter=settings.otel != "off", has_outbox=_has_outbox(settings)
    )
    if settings.web is not None:
        check_installed()
        topology = (*topology, (CONSOLE,))
    if settings.redis_url is None:
        refuse_embedded(settings)
        topology = ((SERVER_KEEPER,), *topology)
    return topology if settings.http is None else ((MONITOR,), *topology)


def _has_outbox(settings: Settings) -> bool:
    if settings.outbox_url is not None and find_spec("sqlalchemy") is None:
        raise ConfigurationError(
            "outbox_url is set, and SQLAlchemy is not installed; accepted is it after "
            "pip install 'mqworker[sql]'"
        )
    return settings.outbox_url is not None


def _cores() -> int:
    """Those that this process may use: a container often has fewer than its host."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _directory(settings: Settings) -> Path:
    """Where the status socket and the run slots go; elsewhere if the user's directory is not writable."""
    directory = settings.data_dir.resolve()
    try:
        if not directory.is_dir():
            directory.mkdir(mode=_PRIVATE, parents=True)
            # Made by us, inside a project as a rule: keep it out of the project's history.
            (directory / ".gitignore").write_text("*\n", encoding="utf-8")
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except OSError as error:
        if settings.redis_url is None:
            return directory  # the embedded server will say what is wrong with it, and how to mend it
        elsewhere = Path(tempfile.mkdtemp(prefix="mqworker-"))
        get_logger(actor="supervisor").warning(
            "data_dir_not_writable", data_dir=str(directory), instead=str(elsewhere), reason=str(error)
        )
        return elsewhere


def _watch(app: str | None) -> SourceWatch:
    return watch_application(app, Path.cwd())


def _announcer(settings: Settings) -> Callable[[ChildRecord], None]:
    """One line for each child that is ready: for people on a terminal, for machines elsewhere."""
    log = get_logger(actor="supervisor")

    def tell_people(record: ChildRecord) -> None:
        again = f", start {record.generation} ({record.last_exit})" if record.restarts else ""
        click.echo(f"  {record.name:<18} pid {_pid(record):<8} ready{again}", err=True)

    def tell_machines(record: ChildRecord) -> None:
        log.info("child_ready", child=record.name, child_pid=_pid(record), generation=record.generation)

    is_console = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    return tell_people if is_console else tell_machines


def _pid(record: ChildRecord) -> int:
    return 0 if record.child is None else record.child.process.pid
