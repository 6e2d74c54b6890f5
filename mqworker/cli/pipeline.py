"""`mqworker pipeline`: the data pipeline on Spark. Thin: the work is done in mqworker_services.pipeline.

Nothing of Spark is imported before a command runs, and a machine without it gets one sentence.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from mqworker.cli.audited import audited
from mqworker.cli.server import REDIS_URL, Target
from mqworker.cli.text import counted
from mqworker.errors import ConfigurationError, MqworkerError, UnknownQueue
from mqworker.events import open_event_streams, with_server
from mqworker.model.clock import SystemClock
from mqworker.settings import Settings, load_settings

if TYPE_CHECKING:
    from mqworker_services.pipeline.lake import Lake
    from mqworker_services.pipeline.session import Session


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """What every command of the pipeline needs."""

    settings: Settings
    lake: Lake
    master: str
    conf: tuple[str, ...]

    def spark(self, *, is_light: bool = False) -> Session:
        """The Spark session; a light one where the JVM has little to do itself."""
        from mqworker_services.pipeline.session import LIGHT, open_session, parse_conf  # noqa: PLC0415 - optional

        conf = (LIGHT if is_light else {}) | parse_conf(self.conf)
        return open_session("mqworker pipeline", master=self.master, conf=conf)

    def trouble(self) -> AbstractContextManager[None]:
        """Turns errors of Spark into sentences."""
        from mqworker_services.pipeline.trouble import in_a_sentence  # noqa: PLC0415 - optional

        return in_a_sentence()


def pipeline_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all commands share; the command receives a PipelineRun."""

    @functools.wraps(command)
    def wrapped(
        *args: object,
        redis_url: str | None,
        lake: str | None,
        master: str,
        conf: tuple[str, ...],
        **rest: Any,  # noqa: ANN401 - the options of the command itself
    ) -> None:
        _need_spark()
        from mqworker_services.pipeline.lake import Lake as LakeFolders  # noqa: PLC0415 - optional

        settings = load_settings({"redis_url": redis_url})
        folders = LakeFolders.at(lake or str(settings.data_dir / "lake"))
        command(*args, pipeline_run=PipelineRun(settings, folders, master, conf), **rest)

    for option in (
        REDIS_URL,
        click.option(
            "--lake",
            metavar="DIR",
            help="Folder, or file:///…; shared by all executors.  [default: .mqworker/lake]",
        ),
        click.option(
            "--master", default="local[*]", show_default=True, help="Spark master, spark://… or local."
        ),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Setting of Spark; may be repeated."),
    ):
        wrapped = option(wrapped)
    return wrapped


@click.group("pipeline")
def pipeline_command() -> None:
    """Archive what happened, ask about it, and enqueue in bulk, on Spark."""


@pipeline_command.command()
@pipeline_options
@click.option("--once/--follow", "is_once", help="What is there now, or also what comes.  [default: follow]")
@click.option("--trim", "is_trimming", is_flag=True, help="Drop from Redis what is in the lake for good.")
@click.option(
    "--hold",
    "blocks_held",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Blocks of events that a queue keeps until they are archived; `release` ends it.",
)
@click.option(
    "--max-events", type=click.IntRange(1), default=500_000, show_default=True, help="In one batch."
)
@click.option(
    "--interval", type=click.FloatRange(0.1), default=5.0, show_default=True, help="Seconds, of --follow."
)
@click.option(
    "--on-loss",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="When events were dropped before they were archived: the queue stands still, or goes on.",
)
@click.option(
    "--accept-loss",
    multiple=True,
    metavar="QUEUE",
    help="Go on with what this queue has, for good; may be repeated.",
)
def archive(
    *,
    pipeline_run: PipelineRun,
    is_once: bool,
    is_trimming: bool,
    blocks_held: int,
    max_events: int,
    interval: float,
    on_loss: Literal["fail", "skip"],
    accept_loss: tuple[str, ...],
) -> None:
    """Write the events of all queues into the lake, each exactly once."""
    from mqworker_services.pipeline.archive import ArchivePlan, archive_and_follow, archive_once  # noqa: PLC0415 - optional
    from mqworker_services.pipeline.progress import Progress  # noqa: PLC0415 - optional

    plan = ArchivePlan(
        with_server(pipeline_run.settings),
        pipeline_run.lake,
        is_trimming,
        on_loss,
        max_events,
        blocks_held=blocks_held,
        interval_s=interval,
        accept_loss=accept_loss,
        warn=lambda sentence: click.echo(f"warning: {sentence}", err=True),
    )
    progress, run = Progress(sys.stderr), archive_once if is_once else archive_and_follow
    with pipeline_run.trouble():
        run(pipeline_run.spark(), plan, progress.count_batch)
    progress.end()
    click.echo(f"{counted(progress.total, 'event')} archived in {pipeline_run.lake.root}")


@pipeline_command.command()
@REDIS_URL
@click.argument("queues", nargs=-1)
def release(redis_url: str | None, queues: tuple[str, ...]) -> None:
    """Hold events for an archiver no longer: QUEUES, or all, keep as many as `events_kept` says again.

    For when nobody archives any more. What is not in the lake by then is dropped as new events come.
    """
    settings = load_settings({"redis_url": redis_url})
    with Target(redis_url).open() as site, open_event_streams(settings) as streams:
        known = streams.queues()
        unknown = sorted(set(queues) - set(known))
        if unknown:
            raise UnknownQueue(f"there is no queue {', '.join(map(repr, unknown))}")
        chosen = list(queues) or known
        with audited(site, "pipeline release", *queues, queue=" ".join(queues)) as doing:
            for queue in chosen:
                streams.hold(queue, None)
            doing.tell(f"{counted(len(chosen), 'queue')} no longer held for an archiver", len(chosen))


@pipeline_command.command()
@pipeline_options
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--task", required=True, help="Name of the task; the columns are its arguments.")
@click.option("-q", "--queue", default="default", show_default=True, help="Queue to enqueue to.")
@click.option("--id", "id_column", help="Column that tells rows apart.  [default: their place in the file]")
@click.option(
    "--format", "file_format", type=click.Choice(["csv", "json", "parquet"]), help="[default: by name]"
)
@click.option("--run", help="Name of this enqueueing; another name enqueues anew.  [default: by the file]")
def enqueue(
    *,
    pipeline_run: PipelineRun,
    file: Path,
    task: str,
    queue: str,
    id_column: str | None,
    file_format: str | None,
    run: str | None,
) -> None:
    """Enqueue one task for each row of FILE (CSV, JSON lines or Parquet), once even if repeated."""
    from mqworker_services.pipeline.enqueueing import EnqueuePlan, enqueue_file  # noqa: PLC0415 - optional
    from mqworker_services.pipeline.progress import Progress  # noqa: PLC0415 - optional

    plan = EnqueuePlan(with_server(pipeline_run.settings), file, task, queue, id_column, file_format, run)
    with pipeline_run.trouble():
        spark = pipeline_run.spark()
        with Progress(sys.stderr).watching(spark, "enqueueing"):
            outcome = enqueue_file(spark, plan)
    click.echo(f"{counted(outcome.rows, 'row')} of {file.name} enqueued as {task} in queue {queue}")
    if outcome.known:
        click.echo(f"{outcome.known:,} of them before, by the same run; --run NAME enqueues them anew")


@pipeline_command.command()
@pipeline_options
@click.option(
    "--where", required=True, help="SQL over queue, task, task_id, reason, error, error_msg, buried_at …"
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show what would go back.")
def replay(*, pipeline_run: PipelineRun, where: str, is_dry: bool) -> None:
    """Put dead letters that SQL chooses back in their queue."""
    from mqworker_services.pipeline.replay import chosen_letters, revive  # noqa: PLC0415 - optional

    settings = with_server(pipeline_run.settings)
    with pipeline_run.trouble():
        letters = chosen_letters(pipeline_run.spark(), settings, where)
        if is_dry:
            rows = letters.groupBy("queue", "task", "reason", "error").count().collect()
            for row in sorted(rows, key=lambda each: -each["count"]):
                click.echo(
                    f"{row['count']:>10,}  {row['queue']}  {row['task']}  {row['reason']}  {row['error']}"
                )
            click.echo(f"{counted(sum(row['count'] for row in rows), 'dead letter')} would go back in line")
            return
        revived = revive(letters, settings)
    for queue, number in sorted(revived.items()):
        click.echo(f"{counted(number, 'dead letter')} of queue {queue} back in line")
    if not revived:
        click.echo("no dead letter fits")


@pipeline_command.command()
@pipeline_options
def compact(pipeline_run: PipelineRun) -> None:
    """Turn the many files of days that are over into few."""
    from mqworker_services.pipeline.compaction import compact as compact_lake  # noqa: PLC0415 - optional
    from mqworker_services.pipeline.days import day_of  # noqa: PLC0415 - optional

    with pipeline_run.trouble():
        swaps = compact_lake(pipeline_run.spark(), pipeline_run.lake, day_of(SystemClock().now_ms()))
    for swap in swaps:
        click.echo(f"{swap.date}: {counted(len(swap.replaces), 'batch')} became one")
    if not swaps:
        click.echo("nothing to compact")


@pipeline_command.command()
@pipeline_options
def verify(pipeline_run: PipelineRun) -> None:
    """Check the lake against its checkpoint: nothing missing, nothing twice."""
    from mqworker_services.pipeline.verify import verify as verify_lake  # noqa: PLC0415 - optional

    with pipeline_run.trouble():
        verdict = verify_lake(pipeline_run.spark(), pipeline_run.lake)
    if not verdict.is_sound:
        raise MqworkerError(
            f"the lake {pipeline_run.lake.root} is not sound: {'; '.join(verdict.problems())}"
        )
    click.echo(
        f"{counted(verdict.rows, 'event')} in {counted(verdict.blocks, 'block')}: none missing, none twice"
    )
    for note in verdict.notes():
        click.echo(note)


@pipeline_command.command()
@pipeline_options
@click.option("--since", help="7d, 24h, 2026-01-31 or 2026-01-31T18:00 (UTC).  [default: all there is]")
@click.option("--until", help="As --since.  [default: now]")
@click.option("--task", "tasks", multiple=True, help="Only this task; may be repeated.")
@click.option("-q", "--queue", "queues", multiple=True, help="Only this queue; may be repeated.")
@click.option(
    "--by",
    type=click.Choice(["task", "queue", "worker", "hour", "day"]),
    default="task",
    show_default=True,
    help="What the rows stand for.",
)
@click.option(
    "--slowest", type=click.IntRange(0, 1_000), default=5, show_default=True, help="Longest runs to show."
)
@click.option("--sla", "sla_ms", type=click.FloatRange(0), metavar="MS", help="Count what took longer.")
@click.option("--json", "is_json", is_flag=True, help="As JSON, one document on one line.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with charts.")
def report(*, pipeline_run: PipelineRun, **options: Any) -> None:  # noqa: ANN401 - the options above
    """Tell how many tasks ran, how long they waited and ran, which were slow, which failed and why."""
    from mqworker.cli.pipeline_report import ReportOptions, run_report  # noqa: PLC0415 - optional

    run_report(pipeline_run, ReportOptions(**options), SystemClock().now_ms())


def _need_spark() -> None:
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(
                f"the pipeline needs {package}, which is not installed: pip install 'mqworker[spark]'"
            )
