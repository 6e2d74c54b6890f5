"""The `mqworker` command: finds the subcommand; errors end in a sentence and an exit code, no traceback.

| exit code | means |
|---|---|
| 0 | done; for `status`: healthy |
| 1 | failed; for `status`: degraded |
| 2 | the command line is wrong; for `status`: down |
| 3 | only from `status`: no Redis |
| 69 | Redis or the embedded server is not available, or full: try again later |
| 78 | the configuration is not valid: correct it, trying again will not help |

`mqworker redis` passes on the exit status of a server that dies.

To add a command: write `cli/<name>.py`, add one loader, one line to `COMMANDS` and a word to `SECTIONS`.
Commands are imported only when they are called, so that `--help` and `status` start fast.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from mqworker import __version__
from mqworker.cli.shared_options import remembering, share_options
from mqworker.errors import (
    ConfigurationError,
    InvalidArgument,
    MqworkerError,
    StoreFull,
    StoreUnavailable,
    code_of,
)

_PASSWORD_IN_URL = re.compile(r"^(?:--redis-url=)?(?:redis|rediss|unix)[a-z+]*://[^/@\s]*:[^/@\s]+@")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 69
EXIT_CONFIGURATION = 78


def main() -> None:
    """Entry point of the console script."""
    for warning in visible_secrets(sys.argv[1:]):
        click.echo(f"mqworker: {warning}", err=True)
    mqworker(prog_name="mqworker")


def visible_secrets(words: Sequence[str]) -> list[str]:
    """What to say of secrets on the command line: everybody on the machine sees them by `ps`."""
    warnings = []
    if any(word.partition("=")[0] == "--gateway-token" for word in words):
        warnings.append(
            "--gateway-token: `ps` shows it to everybody on this machine; better is --gateway-token-file or "
            "MQWORKER_GATEWAY_TOKEN"
        )
    if any(_PASSWORD_IN_URL.search(word) for word in words):
        warnings.append(
            "a password in a URL: `ps` shows it to everybody on this machine; better is MQWORKER_REDIS_URL "
            "or MQWORKER_REDIS_URL_FILE"
        )
    return warnings


def exit_code_of(error: MqworkerError) -> int:
    """The exit code that tells a script or a service manager what to do about the error."""
    match error:
        case ConfigurationError():
            return EXIT_CONFIGURATION
        case StoreUnavailable() | StoreFull():
            return EXIT_UNAVAILABLE
        case InvalidArgument():
            return EXIT_USAGE
        case _:
            return EXIT_FAILED


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A subcommand that is imported when it is called; help needs only its summary."""

    summary: str
    load: Callable[[], click.Command]


def _load_run() -> click.Command:
    from mqworker.cli.run import run_command  # noqa: PLC0415 - imported when called

    return run_command


def _load_serve() -> click.Command:
    from mqworker.cli.serve import serve_command  # noqa: PLC0415 - imported when called

    return serve_command


def _load_health() -> click.Command:
    from mqworker.cli.health import health_command  # noqa: PLC0415 - imported when called

    return health_command


def _load_redis() -> click.Command:
    from mqworker.cli.redis import redis_command  # noqa: PLC0415 - imported when called

    return redis_command


def _load_acl() -> click.Command:
    from mqworker.cli.acl import acl_command  # noqa: PLC0415 - imported when called

    return acl_command


def _load_functions() -> click.Command:
    from mqworker.cli.functions import functions_command  # noqa: PLC0415 - imported when called

    return functions_command


def _load_keys() -> click.Command:
    from mqworker.cli.keys import keys_command  # noqa: PLC0415 - imported when called

    return keys_command


def _load_outbox() -> click.Command:
    from mqworker.cli.outbox import outbox_command  # noqa: PLC0415 - imported when called

    return outbox_command


def _load_offload() -> click.Command:
    from mqworker.cli.offload import offload_command  # noqa: PLC0415 - imported when called

    return offload_command


def _load_rsmq() -> click.Command:
    from mqworker.cli.rsmq import rsmq_command  # noqa: PLC0415 - imported when called

    return rsmq_command


def _load_status() -> click.Command:
    from mqworker.cli.status.command import status_command  # noqa: PLC0415 - imported when called

    return status_command


def _load_doctor() -> click.Command:
    from mqworker.cli.doctor import doctor_command  # noqa: PLC0415 - imported when called

    return doctor_command


def _load_queue() -> click.Command:
    from mqworker.cli.queue import queue_command  # noqa: PLC0415 - imported when called

    return queue_command


def _load_job() -> click.Command:
    from mqworker.cli.job import job_command  # noqa: PLC0415 - imported when called

    return job_command


def _load_dead() -> click.Command:
    from mqworker.cli.dead import dead_command  # noqa: PLC0415 - imported when called

    return dead_command


def _load_bulk() -> click.Command:
    from mqworker.cli.bulk import bulk_command  # noqa: PLC0415 - imported when called

    return bulk_command


def _load_limit() -> click.Command:
    from mqworker.cli.limit import limit_command  # noqa: PLC0415 - imported when called

    return limit_command


def _load_strike() -> click.Command:
    from mqworker.cli.strike import strike_command  # noqa: PLC0415 - imported when called

    return strike_command


def _load_stats() -> click.Command:
    from mqworker.cli.stats import stats_command  # noqa: PLC0415 - imported when called

    return stats_command


def _load_schedule() -> click.Command:
    from mqworker.cli.schedule import schedule_command  # noqa: PLC0415 - imported when called

    return schedule_command


def _load_workflow() -> click.Command:
    from mqworker.cli.workflow import workflow_command  # noqa: PLC0415 - imported when called

    return workflow_command


def _load_web() -> click.Command:
    from mqworker.cli.web import web_command  # noqa: PLC0415 - imported when called

    return web_command


def _load_audit() -> click.Command:
    from mqworker.cli.audit import audit_command  # noqa: PLC0415 - imported when called

    return audit_command


def _load_pipeline() -> click.Command:
    from mqworker.cli.pipeline import pipeline_command  # noqa: PLC0415 - imported when called

    return pipeline_command


def _load_migrate() -> click.Command:
    from mqworker.cli.migrate.command import migrate_command  # noqa: PLC0415 - imported when called

    return migrate_command


def _load_explain() -> click.Command:
    from mqworker.cli.explain import explain_command  # noqa: PLC0415 - imported when called

    return explain_command


def _load_new() -> click.Command:
    from mqworker.cli.new import new_command  # noqa: PLC0415 - imported when called

    return new_command


def _load_completion() -> click.Command:
    from mqworker.cli.completion import completion_command  # noqa: PLC0415 - imported when called

    return completion_command


COMMANDS = {
    "run": LazyCommand("Run tasks: the supervisor, its actors and workers, until TERM or Ctrl-C.", _load_run),
    "serve": LazyCommand("Let foreign programs in: a gateway without task workers.", _load_serve),
    "health": LazyCommand("Probe the node of this directory; exit with 0 or 1.", _load_health),
    "status": LazyCommand("Show how everything is, on one screen.", _load_status),
    "doctor": LazyCommand("Check server, clock, limits and nodes, and what nodes skip.", _load_doctor),
    "queue": LazyCommand("Look at queues; pause, resume, limit and purge them.", _load_queue),
    "job": LazyCommand("Look at one message: why it does not run; cancel or retry it.", _load_job),
    "dead": LazyCommand("Look at dead letters; put them back in line or throw them away.", _load_dead),
    "bulk": LazyCommand("Retry, drop or cancel all jobs that fit a search, throttled.", _load_bulk),
    "limit": LazyCommand("Look at how many run at once; set, close and open limits.", _load_limit),
    "strike": LazyCommand("Skip calls of a task with certain arguments, for a while.", _load_strike),
    "stats": LazyCommand("Show throughput, failures, wait and run by task, up to a day.", _load_stats),
    "schedule": LazyCommand("Look at schedules; make, pause, run and delete them.", _load_schedule),
    "workflow": LazyCommand("Look at workflows and their members, and cancel them.", _load_workflow),
    "web": LazyCommand("Show everything in a browser, live, and act on it.", _load_web),
    "audit": LazyCommand("Show who did what, the newest first.", _load_audit),
    "pipeline": LazyCommand("Archive what happened, ask about it, and enqueue in bulk.", _load_pipeline),
    "redis": LazyCommand("Run the embedded server alone, for a Procfile.", _load_redis),
    "acl": LazyCommand("Print what a user of the server must be allowed.", _load_acl),
    "functions": LazyCommand("Put the RedisMQ verbs into the server, as functions.", _load_functions),
    "keys": LazyCommand("Make keys that sign or encrypt payloads; see which are set.", _load_keys),
    "outbox": LazyCommand("Look after calls that wait in a database of yours.", _load_outbox),
    "offload": LazyCommand("Look after large payloads that are kept elsewhere.", _load_offload),
    "rsmq": LazyCommand("Look after RSMQ queues and messages, as rsmqctl does.", _load_rsmq),
    "migrate": LazyCommand("Come from Celery: see what carries over, or go back.", _load_migrate),
    "explain": LazyCommand("Tell what an error means and what to do.", _load_explain),
    "new": LazyCommand("Make a small project to begin with: an app, its test, a Procfile.", _load_new),
    "completion": LazyCommand("Let your shell complete commands and options.", _load_completion),
}


SECTIONS = {
    "Run": "run serve web redis",
    "Look": "status stats health doctor audit explain",
    "Queues and messages": "queue job dead bulk strike limit schedule workflow rsmq pipeline",
    "Set up": "new migrate completion acl keys offload outbox functions",
}
"""The help in the order of a reader's questions; each command stands in one of them."""


class CommandGroup(click.Group):
    """Lists the commands without importing them, and turns our errors into sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - same
        """The command itself, imported now."""
        command = COMMANDS.get(cmd_name)
        return share_options(command.load()) if command else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed; click would know which was meant only among those that are loaded."""
        from difflib import get_close_matches  # noqa: PLC0415 - as a rule nothing is misspelt

        close = get_close_matches(args[0], COMMANDS, n=2)
        if args[0] not in COMMANDS and close:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {' or '.join(close)}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - same
        """The sections of the help with one line for each command."""
        widest = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{widest}}", COMMANDS[name].summary) for name in names.split()])

    # Any: a command may return anything to click.
    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run the command."""
        try:
            return super().invoke(ctx)
        except MqworkerError as error:
            code = code_of(type(error))
            # With the name of the program, so that it can be found in the joint log of a Procfile.
            click.echo(f"mqworker: {error} [{code}]", err=True)
            if sys.stderr.isatty():
                click.echo(click.style(f"mqworker explain {code} tells more", dim=True), err=True)
            ctx.exit(exit_code_of(error))


class _ColorOption(click.Option):
    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Whatever the variable holds is a yes, as no-color.org asks; empty is as if it were not there."""
        return "yes" if super().resolve_envvar_value(ctx) else None


def _without_color(context: click.Context, _: click.Parameter, value: object) -> None:
    if value:
        context.color = False


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Settings come from flags, then MQWORKER_* variables, then [tool.mqworker] in pyproject.toml. "
    "Without redis_url, an embedded server is started and keeps its data in .mqworker/. "
    "`mqworker COMMAND --help` explains a command, `mqworker explain CODE` an error.",
    params=[remembering("redis_url"), remembering("is_json")],
)
@click.option(
    "--no-color",
    cls=_ColorOption,
    is_flag=True,
    envvar="NO_COLOR",
    expose_value=False,
    callback=_without_color,
    help="Plain text on a terminal, too; as the variable NO_COLOR.",
)
@click.version_option(__version__, "-V", "--version", message="mqworker %(version)s")
def mqworker() -> None:
    """Background work in Python on Redis or Valkey: tasks, queues and the processes that run them."""
