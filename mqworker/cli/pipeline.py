"""`mqworker pipeline`: the data pipeline. Thin: the work is done in mqworker_services.pipeline.

Nothing of Arrow, Delta or Spark is imported before a command runs, and a machine without them gets one
sentence. Spark is started only for a command that needs it, or with `--master`.
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
from mqworker.cli.connect import connect
from mqworker.cli.server import REDIS_URL, Target
from mqworker.cli.text import counted
from mqworker.errors import ConfigurationError, InvalidArgument, MqworkerError, UnknownQueue
from mqworker.events import open_event_streams, with_server
from mqworker.model.clock import SystemClock
from mqworker.settings import Settings, load_settings

if TYPE_CHECKING:
    from mqworker_services.pipeline.engine import Engine
    from mqworker_services.pipeline.lake import Lake
    from mqworker_services.pipeline.session import Session


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """What every command of the pipeline needs."""

    settings: Settings
    lake: Lake
    master: str | None
    conf: tuple[str, ...]
    ship: Path | None = None
    """A packed environment for executors that have none."""

    @property
    def is_on_spark(self) -> bool:
        """Whether Spark was asked for."""
        return self.master is not None or bool(self.conf) or self.ship is not None

    def spark(self) -> Session:
        """The Spark session of a command that uses `format("mqworker")`."""
        if self.ship is not None:
            # Spark plans such a source with the same path of Python on this machine.
            raise InvalidArgument(
                "--ship is given; accepted is an environment that all executors have at one path"
            )
        return self._session(is_light=False)

    def _session(self, *, is_light: bool) -> Session:
        """A light one where the JVM has little to do itself."""
        _need("pyspark", "spark")
        from mqworker_services.pipeline.session import DEFAULT_MASTER, LIGHT, open_session, parse_conf  # noqa: PLC0415 - optional

        shipped = {} if self.ship is None else {"spark.archives": f"{self.ship.absolute()}#environment"}
        conf = (LIGHT if is_light else {}) | shipped | parse_conf(self.conf)
        return open_session("mqworker pipeline", master=self.master or DEFAULT_MASTER, conf=conf)

    def engine(self) -> Engine:
        """Who reads and writes the lake: this process, or the executors of the Spark that was asked for."""
        from mqworker_services.pipeline.engine import LocalEngine, SparkEngine  # noqa: PLC0415 - optional

        if not self.is_on_spark:
            return LocalEngine()
        with self.trouble():
            return SparkEngine(self._session(is_light=True))

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
        storage: tuple[str, ...],
        master: str | None,
        conf: tuple[str, ...],
        ship: Path | None,
        **rest: Any,  # noqa: ANN401 - the options of the command itself
    ) -> None:
        for package in ("pyarrow", "deltalake"):
            _need(package, "lake")
        from mqworker_services.pipeline.lake import Lake as LakePlace  # noqa: PLC0415 - optional
        from mqworker_services.pipeline.storage import parse_storage  # noqa: PLC0415 - optional

        settings = load_settings({"redis_url": redis_url})
        place = LakePlace.at(lake or str(settings.data_dir / "lake"), parse_storage(storage))
        command(*args, pipeline_run=PipelineRun(settings, place, master, conf, ship), **rest)

    for option in (
        REDIS_URL,
        click.option(
            "--lake",
            metavar="PLACE",
            help="Folder, file:///… or s3://bucket/path.  [default: .mqworker/lake]",
        ),
        click.option(
            "--storage",
            multiple=True,
            metavar="NAME=VALUE",
            help="endpoint or region of a bucket; repeatable.",
        ),
        click.option(
            "--master", help="Spark master, spark://… or local[*].  [default: without Spark where that works]"
        ),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Setting of Spark; may be repeated."),
        click.option(
            "--ship",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="ENV.tar.gz",
            help="Packed virtualenv that executors run in.  [default: this interpreter's path]",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


@click.group("pipeline")
def pipeline_command() -> None:
    """Archive what happened, ask about it, and enqueue in bulk."""


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
        _with_running_server(pipeline_run.settings),
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
    run(pipeline_run.engine(), plan, progress.count_batch)
    progress.end()
    click.echo(f"{counted(progress.total, 'event')} archived in {pipeline_run.lake.root}")


@pipeline_command.command()
@REDIS_URL
@click.argument("queues", nargs=-1)
def release(redis_url: str | None, queues: tuple[str, ...]) -> None:
    """Hold events for an archiver no longer.

    QUEUES, or all, keep as many as `events_kept` says again: for when nobody archives any more. What is not
    in the lake by then is dropped as new events come.
    """
    settings = load_settings({"redis_url": redis_url})
    with Target(redis_url).open() as system, open_event_streams(settings) as streams:
        known = streams.queues()
        unknown = sorted(set(queues) - set(known))
        if unknown:
            raise UnknownQueue(f"there is no queue {', '.join(map(repr, unknown))}")
        chosen = list(queues) or known
        with audited(system, "pipeline release", *queues, queue=" ".join(queues)) as doing:
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
    """Enqueue one task for each row of FILE.

    CSV, JSON lines or Parquet; each row once, even if the command is repeated.
    """
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

    _need("pyspark", "spark")
    settings = _with_running_server(pipeline_run.settings)
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
@click.option("--keep", metavar="90d", help="Remove days that are older from the lake.  [default: keep all]")
def compact(pipeline_run: PipelineRun, keep: str | None) -> None:
    """Turn many small files into few, sorted.

    What is then no longer part of the lake is deleted.
    """
    from mqworker_services.pipeline import compaction  # noqa: PLC0415 - optional
    from mqworker_services.pipeline.days import day_of, first_day_kept  # noqa: PLC0415 - optional

    now_ms, lake = SystemClock().now_ms(), pipeline_run.lake
    first_kept = None if keep is None else first_day_kept(keep, now_ms)
    engine = pipeline_run.engine()
    if first_kept is not None:
        removed = compaction.expire(engine, lake, first_kept)
        rows = counted(sum(file.rows for file in removed), "event")
        click.echo(f"{rows} before {first_kept} removed from the lake")
    merges = compaction.compact(engine, lake, day_of(now_ms))
    for merge in merges:
        click.echo(f"{merge.date}: {counted(len(merge.files), 'file')} became one")
    if not merges:
        click.echo("nothing to compact")
    deleted = compaction.vacuum(lake)
    if deleted:
        click.echo(f"{counted(deleted, 'file')} deleted that left the lake a week ago or never got into it")


@pipeline_command.command()
@pipeline_options
def convert(pipeline_run: PipelineRun) -> None:
    """Make a table of a lake that an older version wrote.

    Those were plain Parquet files.
    """
    from mqworker_services.pipeline.conversion import convert as convert_lake  # noqa: PLC0415 - optional

    files = convert_lake(pipeline_run.lake)
    rows = counted(sum(file.rows for file in files), "event")
    click.echo(f"{counted(len(files), 'file')} with {rows} are a table now: {pipeline_run.lake.root}")


@pipeline_command.command()
@pipeline_options
def verify(pipeline_run: PipelineRun) -> None:
    """Check that in the lake nothing is missing or twice."""
    from mqworker_services.pipeline.verify import verify as verify_lake  # noqa: PLC0415 - optional

    verdict = verify_lake(pipeline_run.engine(), pipeline_run.lake)
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
@click.option("--since", help="7d, 24h, 2026-01-31 or 2026-01-31T18:00.  [default: all there is]")
@click.option("--until", help="As --since.  [default: now]")
@click.option("--task", "tasks", multiple=True, help="Only this task; may be repeated.")
@click.option("-q", "--queue", "queues", multiple=True, help="Only this queue; may be repeated.")
@click.option(
    "--by",
    type=click.Choice(["task", "queue", "worker", "node", "hour", "day"]),
    default="task",
    show_default=True,
    help="What the rows stand for.",
)
@click.option(
    "--slowest", type=click.IntRange(0, 1_000), default=5, show_default=True, help="Longest runs to show."
)
@click.option("--sla", "sla_ms", type=click.FloatRange(0), metavar="MS", help="Count what took longer.")
@click.option(
    "--slo", "slos", multiple=True, metavar="'charge: 99% < 2s'", help="A promise; may be repeated."
)
@click.option("--compare", "is_compared", is_flag=True, help="Compare with the period before.")
@click.option("--forecast", "is_forecast", is_flag=True, help="What the next week will need.")
@click.option("--tz", default="UTC", show_default=True, help="Time zone of days and hours: Europe/Berlin.")
@click.option("--json", "is_json", is_flag=True, help="As JSON, one document on one line.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with charts.")
def report(*, pipeline_run: PipelineRun, **options: Any) -> None:  # noqa: ANN401 - the options above
    """Tell how many tasks ran, how long, and which failed.

    Also how long they waited, which were slow, and why they failed.
    """
    from mqworker.cli.pipeline_report import ReportOptions, run_report  # noqa: PLC0415 - optional

    run_report(pipeline_run, ReportOptions(**options), SystemClock().now_ms())


@pipeline_command.command()
@pipeline_options
@click.argument("query")
@click.option("--limit", type=click.IntRange(1), default=1_000, show_default=True, help="Rows at the most.")
@click.option("--json", "is_json", is_flag=True, help="As JSON, a document for each row.")
def sql(*, pipeline_run: PipelineRun, query: str, limit: int, is_json: bool) -> None:
    """Answer QUERY, SQL over the table `events`.

    DuckDB answers, or Spark with --master.
    """
    from mqworker.cli.pipeline_questions import run_sql  # noqa: PLC0415 - optional

    run_sql(pipeline_run, query, most=limit, is_json=is_json)


@pipeline_command.command()
@pipeline_options
@click.argument("message_id", metavar="ID")
@click.option("--json", "is_json", is_flag=True, help="As JSON, a document for each event.")
def trace(*, pipeline_run: PipelineRun, message_id: str, is_json: bool) -> None:
    """Show everything that happened to the message ID."""
    from mqworker.cli.pipeline_questions import run_trace  # noqa: PLC0415 - optional

    run_trace(pipeline_run, message_id, is_json=is_json)


def _with_running_server(settings: Settings) -> Settings:
    """Refuse to start a server only to read from it: it would be empty, and stay."""
    connect(settings).close()
    return with_server(settings)


def _need(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ConfigurationError(
            f"the pipeline needs {package}, which is not installed: pip install 'mqworker[{extra}]'"
        )
