"""Options of `format("mqworker")`: read and checked once, on the driver, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, cast, get_args

from mqworker.errors import InvalidArgument
from mqworker.settings import Settings, load_settings

Table = Literal["events", "queues", "dead_letters", "archive"]
OnLoss = Literal["fail", "skip"]
Starting = Literal["earliest", "latest"] | int
"""With what a read begins: everything, only what comes, or what happened at an instant (ms) and later."""

MAX_EVENTS_PER_BATCH: Final = 500_000
EVENTS_PER_PARTITION: Final = 100_000
_MOST: Final = 1_000_000_000

READ_OPTIONS: Final = (
    "table, queues, redis_url, namespace, starting, max_events_per_batch, events_per_partition, on_loss, "
    "trim, lake, endpoint, region"
)
_SPARKS_OWN: Final = ("path", "checkpointlocation", "queryname")
"""Meant for Spark, which hands them on to us all the same."""
WRITE_OPTIONS: Final = "task, queue, id, run, redis_url, namespace"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is read, and how much of it at a time."""

    settings: Settings
    table: Table = "events"
    queues: tuple[str, ...] = ()
    """Only these; empty: all of them, also those that come into being later."""
    max_events_per_batch: int = MAX_EVENTS_PER_BATCH
    events_per_partition: int = EVENTS_PER_PARTITION
    on_loss: OnLoss = "fail"
    is_trimming: bool = False
    starting: Starting = "earliest"
    lake: str = ""
    """Where the archive is; as `--lake`."""
    storage: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Which task is enqueued, and how its rows are told apart."""

    settings: Settings
    task: str
    queue: str
    id_column: str | None
    run: str | None


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a read; raises InvalidArgument with the option, what was given and what is accepted."""
    _refuse_unknown(given, READ_OPTIONS)
    table = cast("Table", _one_of(given, "table", "events", get_args(Table)))
    if table == "archive" and not given.get("lake"):
        raise InvalidArgument("option lake is missing; accepted is a folder or s3://bucket/path")
    return ReadOptions(
        settings=settings_from(given),
        table=table,
        queues=tuple(name for name in given.get("queues", "").replace(" ", "").split(",") if name),
        max_events_per_batch=_whole(given, "max_events_per_batch", MAX_EVENTS_PER_BATCH),
        events_per_partition=_whole(given, "events_per_partition", EVENTS_PER_PARTITION),
        on_loss=cast("OnLoss", _one_of(given, "on_loss", "fail", get_args(OnLoss))),
        is_trimming=_one_of(given, "trim", "false", ("true", "false")) == "true",
        starting=_starting(given.get("starting", "earliest")),
        lake=given.get("lake", ""),
        storage=tuple((name, given[name]) for name in ("endpoint", "region") if given.get(name)),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write; raises InvalidArgument likewise."""
    _refuse_unknown(given, WRITE_OPTIONS)
    if not given.get("task"):
        raise InvalidArgument(
            'option task is missing; accepted is the name of a task: .option("task", "mail")'
        )
    return WriteOptions(
        settings=settings_from(given),
        task=given["task"],
        queue=given.get("queue", "default"),
        id_column=given.get("id") or None,
        run=given.get("run") or None,
    )


def settings_from(given: Mapping[str, str]) -> Settings:
    """All settings, with those that were given as options over what is configured."""
    return load_settings({name: given.get(name) for name in ("redis_url", "namespace")})


def _starting(text: str) -> Starting:
    if text.lower() in {"earliest", "latest"}:
        return cast("Starting", text.lower())
    try:
        moment = datetime.fromisoformat(text)
        return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"option starting is {text!r}; accepted are earliest, latest, or such as 2026-01-31T18:00"
        ) from error


def _refuse_unknown(given: Mapping[str, str], known: str) -> None:
    unknown = sorted(name for name in given if name.lower() not in {*known.split(", "), *_SPARKS_OWN})
    if unknown:
        raise InvalidArgument(f"unknown option {unknown[0]}; accepted are {known}")


def _one_of(given: Mapping[str, str], name: str, usual: str, accepted: tuple[str, ...]) -> str:
    value = given.get(name, usual).lower()
    if value not in accepted:
        raise InvalidArgument(f"option {name} is {value!r}; accepted are {', '.join(accepted)}")
    return value


def _whole(given: Mapping[str, str], name: str, usual: int) -> int:
    text = given.get(name, str(usual))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST:
        raise InvalidArgument(f"option {name} is {text!r}; accepted are whole numbers from 1 to {_MOST:,}")
    return int(text)
