"""Settings: all configuration, read and validated once, before anything starts.

Flags win over `MQWORKER_*` variables, those over `[tool.mqworker]` in the nearest pyproject.toml, those over
the defaults below. No other module reads the environment or pyproject.toml. To add a setting, add one line
to `Settings`.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from mqworker import setting_rules as accept
from mqworker.errors import ConfigurationError
from mqworker.log import LogFormat, LogLevel
from mqworker.redaction import masked_url

Orphans = Literal["drop", "requeue"]
YesOrNo = Literal["yes", "no"]
Embedded = Literal["auto", "never"]
Otel = Literal["off", "link", "parent"]

HOUR_S = 3_600
YEAR_S = 365 * 24 * HOUR_S
# 3 * 0.1 is a little more than 0.3.
ROUNDING_S = 1e-9


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Everything that can be configured. Made by `load_settings`; a direct call sets values unchecked."""

    # Where the data is. No URL means the embedded server, whose files stand under data_dir, unless it is
    # forbidden by embedded: then a URL is a must.
    redis_url: Annotated[str | None, accept.redis_url()] = None
    redis_url_file: Annotated[Path | None, accept.file()] = None
    data_dir: Annotated[Path, accept.path()] = Path(".mqworker")
    embedded: Annotated[Embedded, accept.one_of("auto", "never")] = "auto"
    namespace: Annotated[str, accept.name(longest=32)] = "mqw"

    # What this node runs. No number of workers means one for each core; no queues, all of them; no node name,
    # one made from host and process. A worker that ran max_tasks or grew past max_memory_bytes is replaced.
    node: Annotated[str | None, accept.name(longest=64)] = None
    workers: Annotated[int | None, accept.whole(1, 1024)] = None
    threads: Annotated[int, accept.whole(1, 256)] = 1
    concurrency: Annotated[int, accept.whole(1, 10_000)] = 100
    max_tasks: Annotated[int | None, accept.whole(1, 10**12)] = None
    max_memory_bytes: Annotated[int | None, accept.whole(1, 10**15)] = None
    queues: Annotated[tuple[str, ...], accept.queue_names()] = ()

    # How long things may take. Without drain_s: a little less than what started the node waits.
    drain_s: Annotated[float | None, accept.seconds(0, HOUR_S)] = None
    heartbeat_interval_s: Annotated[float, accept.seconds(0.01, 60)] = 1.0
    heartbeat_timeout_s: Annotated[float, accept.seconds(0.03, HOUR_S)] = 5.0
    connect_timeout_s: Annotated[float, accept.seconds(0.01, HOUR_S)] = 2.0
    read_timeout_s: Annotated[float, accept.seconds(0.01, HOUR_S)] = 5.0
    retry_for_s: Annotated[float, accept.seconds(0, HOUR_S)] = 10.0
    # So long a program waits for Redis to store a call, or to answer about a job; tasks in workers, and
    # everything else, wait for retry_for_s.
    send_timeout_s: Annotated[float, accept.seconds(0.1, HOUR_S)] = 3.0
    # So long the lifespan of an app may take to start, and to end.
    lifespan_timeout_s: Annotated[float, accept.seconds(0.1, HOUR_S)] = 60.0
    # How long after its admission a rate-limited message may start; longer for a server that is far away. All
    # nodes should say the same.
    permit_s: Annotated[float, accept.seconds(0.01, 60)] = 0.2

    # What is kept, and how much of it.
    events_kept: Annotated[int, accept.whole(1, 100_000_000)] = 10_000
    result_ttl_s: Annotated[float, accept.seconds(1, YEAR_S)] = 600.0
    dedup_window_s: Annotated[float, accept.seconds(1, YEAR_S)] = 600.0
    max_message_bytes: Annotated[int, accept.whole(1, 1_048_576)] = 262_144
    max_crashes: Annotated[int, accept.whole(1, 35)] = 3
    max_losses: Annotated[int, accept.whole(1, 25)] = 10
    # Of what a task logs, so many lines are kept with its job for an hour; 0: none.
    job_log_lines: Annotated[int, accept.whole(0, 1_000)] = 50

    # Topics on the keys of the GOMQ document: what these keys begin with, when a silent peer is dropped, what
    # becomes of what it had not read, when an unread main queue is dropped, and how long a backlog waits for
    # more subscribers after its first. All nodes must say the same.
    gomq_prefix: Annotated[str, accept.key_prefix(longest=64)] = ""
    gomq_silent_s: Annotated[float, accept.seconds(0.1, HOUR_S)] = 30.0
    gomq_orphans: Annotated[Orphans, accept.one_of("drop", "requeue")] = "drop"
    gomq_queue_ttl_s: Annotated[float | None, accept.seconds(0.001, YEAR_S)] = None
    gomq_dispatch_grace_s: Annotated[float, accept.seconds(0, HOUR_S)] = 1.0

    # Gateways of this node, as name or name=place, and who may come in: at a place that other machines can
    # reach, only by TLS and with a token, as one of the users in a file, or with a client certificate that
    # gateway_tls_client_ca signed. gateway_max_strangers are connections of one address that have not shown
    # yet who they are. A gateway makes no queue more where there are gateway_max_queues. A connection that is
    # silent for gateway_idle_s is closed; 0: never. gateway_rate is commands a second on one connection; 0:
    # any. gateway_options are name.key=value.
    gateways: Annotated[tuple[str, ...], accept.gateways()] = ()
    gateway_token: Annotated[str | None, accept.secret(longest=1024)] = None
    gateway_token_file: Annotated[Path | None, accept.file()] = None
    gateway_users_file: Annotated[Path | None, accept.file()] = None
    gateway_tls_certificate: Annotated[Path | None, accept.file()] = None
    gateway_tls_key: Annotated[Path | None, accept.file()] = None
    gateway_tls_client_ca: Annotated[Path | None, accept.file()] = None
    gateway_max_strangers: Annotated[int, accept.whole(1, 100_000)] = 20
    gateway_max_queues: Annotated[int, accept.whole(1, 10_000_000)] = 10_000
    gateway_max_connections: Annotated[int, accept.whole(1, 100_000)] = 1_000
    gateway_idle_s: Annotated[float, accept.seconds(0, YEAR_S)] = 300.0
    gateway_rate: Annotated[int, accept.whole(0, 10**9)] = 0
    gateway_options: Annotated[tuple[str, ...], accept.gateway_options()] = ()

    # With keys, payloads in Redis are signed or encrypted, by the first of them; given by value or in a file.
    # What is not signed is run only from the queues of accept_unsigned; * is all of them.
    keys: Annotated[str | None, accept.keys()] = None
    keys_file: Annotated[Path | None, accept.file()] = None
    accept_unsigned: Annotated[tuple[str, ...], accept.names_or_all(longest=128)] = ()

    # Where payloads of more than offload_above_bytes are kept: a directory, or s3://bucket/prefix. What
    # nothing refers to is removed after offload_grace_s.
    offload: Annotated[str | None, accept.offload()] = None
    offload_above_bytes: Annotated[int, accept.whole(1, 2**30)] = 65_536
    offload_grace_s: Annotated[float, accept.seconds(0, YEAR_S)] = 86_400.0

    # The database whose outbox this node moves into Redis, as SQLAlchemy has its URLs; nothing is moved
    # without it. Rows are looked for at this interval while there are none, and stay for outbox_keep_s after
    # they were moved: as long as Redis may lose its newest writes.
    outbox_url: Annotated[str | None, accept.database_url()] = None
    outbox_url_file: Annotated[Path | None, accept.file()] = None
    outbox_poll_s: Annotated[float, accept.seconds(0.01, 60)] = 0.1
    outbox_keep_s: Annotated[float, accept.seconds(0, HOUR_S)] = 60.0

    # Where this node answers probes (/livez, /readyz), metrics and /scale; nowhere without it.
    http: Annotated[str | None, accept.place()] = None

    # Where a node serves the console, as host:port; and who may use it from other machines: a file with lines
    # of `role name token`.
    web: Annotated[str | None, accept.tcp_place()] = None
    web_tokens: Annotated[Path | None, accept.file()] = None

    # Where `mqworker pipeline archive` writes: console and `mqworker job` look there for what Redis forgot.
    lake: Annotated[str | None, accept.lake_place()] = None

    # Traces and metrics by OpenTelemetry; where they go say its own OTEL_* variables. The span of a run is
    # linked to that of the sender, or is its child. otel_share is how much is recorded of what nobody decided
    # about yet; otel_create makes a span of each message of a batch.
    otel: Annotated[Otel, accept.one_of("off", "link", "parent")] = "off"
    otel_share: Annotated[float, accept.share()] = 1.0
    otel_create: Annotated[YesOrNo, accept.one_of("yes", "no")] = "no"

    # What is logged. "auto" is console on a terminal and json elsewhere. Successes: a line for each run.
    log_successes: Annotated[YesOrNo, accept.one_of("yes", "no")] = "no"
    log_level: Annotated[LogLevel, accept.one_of("debug", "info", "warning", "error")] = "info"
    log_format: Annotated[LogFormat, accept.one_of("auto", "json", "console")] = "auto"

    def __repr__(self) -> str:
        """All settings without the secrets among them: a repr ends up in logs and tracebacks."""
        shown_url = None if self.redis_url is None else masked_url(self.redis_url)
        values = {each.name: getattr(self, each.name) for each in fields(self)} | {"redis_url": shown_url}
        values["outbox_url"] = None if self.outbox_url is None else masked_url(self.outbox_url)
        values["gateway_token"] = None if self.gateway_token is None else "***"
        values["keys"] = None if self.keys is None else "***"
        return f"Settings({', '.join(f'{key}={value!r}' for key, value in values.items())})"


VALUE_BY_FILE_SETTING = {
    "redis_url_file": "redis_url",
    "gateway_token_file": "gateway_token",
    "keys_file": "keys",
    "outbox_url_file": "outbox_url",
}
"""What stands in such a file is the value of the other setting, which `ps` and a listing of variables would
show. The file ends with a newline or not."""

LARGEST_VALUE_FILE_BYTES = 65_536

RULE_BY_NAME: dict[str, accept.Rule] = {
    known: hint.__metadata__[0] for known, hint in get_type_hints(Settings, include_extras=True).items()
}


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    directory: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read all sources and check all of them; raise one ConfigurationError that lists every problem.

    `flags` are named as the fields of Settings; one that is None or () was not given. The search for
    pyproject.toml begins in `directory`; a relative path in that file is relative to the file.
    """
    reading = _Reading()
    for source in (
        _pyproject_source(directory or Path.cwd(), reading.problems),
        _environment_source(os.environ if environ is None else environ),
        _flags_source(flags or {}),
    ):
        reading.take(source)
    settings = Settings(**reading.values)
    # Two lost beats must not look like a death.
    reading.check_pair(settings, "heartbeat_timeout_s", "heartbeat_interval_s", times=3)
    # A call tried again after its message was settled must still be known, or the message runs twice.
    reading.check_pair(settings, "dedup_window_s", "retry_for_s", times=2)
    if reading.problems:
        raise ConfigurationError("\n  ".join(["the configuration is not valid:", *reading.problems]))
    return settings


@dataclass(frozen=True, slots=True)
class _Source:
    """One place settings come from: the values by the user's spelling, and how to speak about them."""

    values: Mapping[str, object]
    spell: Callable[[str], str]
    title: Callable[[str], str] = str
    anchor: Path = Path()


@dataclass(slots=True)
class _Reading:
    """What has been read so far, later sources over earlier ones, and what was wrong with any of it."""

    # Any: each value passed the rule of its own field, which mypy cannot follow.
    values: dict[str, Any] = field(default_factory=dict)
    title_by_name: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def take(self, source: _Source) -> None:
        name_by_spelling = {source.spell(known): known for known in RULE_BY_NAME}
        names = {name_by_spelling.get(key) for key in source.values}
        for key, raw in source.values.items():
            if key in name_by_spelling:
                known = name_by_spelling[key]
                self._take_value(known, raw, source.title(key), source.anchor)
                if known in VALUE_BY_FILE_SETTING:
                    self._take_file(known, source.title(key), names)
            else:
                close = difflib.get_close_matches(key, name_by_spelling, n=1)
                hint = (
                    f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(name_by_spelling))}"
                )
                self.problems.append(f"{source.title(key)}: unknown setting; {hint}")

    def _take_value(self, known: str, raw: object, title: str, anchor: Path) -> None:
        rule = RULE_BY_NAME[known]
        try:
            value = rule.parse(raw)
        except ValueError:
            self.refused.add(known)
            given = "a value that is not shown" if rule.is_secret else accept.shown(raw)
            self.problems.append(f"{title}: got {given}; accepted: {rule.accepts}")
            return
        self.values[known] = anchor / value if isinstance(value, Path) else value
        self.title_by_name[known] = title

    def _take_file(self, known: str, title: str, given: set[str | None]) -> None:
        """The value of another setting that stands in a file; a later source may give another again."""
        valued, path = VALUE_BY_FILE_SETTING[known], self.values.get(known)
        if path is None or known in self.refused:
            return
        if valued in given:
            self.problems.append(f"{title}: got {valued} as well; accepted: one of the two")
            return
        try:
            with path.open(encoding="utf-8") as file:
                raw = file.read(LARGEST_VALUE_FILE_BYTES).removesuffix("\n").removesuffix("\r")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            self.problems.append(
                f"{title}: {path} cannot be read ({reason}); accepted: a file with {valued} in it"
            )
            return
        self._take_value(valued, raw, f"{title}: what stands in {path}", Path())

    def check_pair(self, settings: Settings, longer: str, shorter: str, *, times: int) -> None:
        longer_s, shorter_s = getattr(settings, longer), getattr(settings, shorter)
        if not self.refused & {longer, shorter} and longer_s + ROUNDING_S < times * shorter_s:
            self.problems.append(
                f"{self._title(longer)}: got {longer_s:g}; accepted: at least {times} times "
                f"{self._title(shorter)}, which is {shorter_s:g}"
            )

    def _title(self, known: str) -> str:
        return self.title_by_name.get(known, f"{known} (default)")


def _flags_source(flags: Mapping[str, object]) -> _Source:
    def spell(known: str) -> str:
        return f"--{known.replace('_', '-')}"

    given = {spell(key): value for key, value in flags.items() if value is not None and value != ()}
    return _Source(given, spell)


def _environment_source(environ: Mapping[str, str]) -> _Source:
    given = {key: value for key, value in environ.items() if key.startswith("MQWORKER_")}
    return _Source(given, lambda known: f"MQWORKER_{known.upper()}")


def _pyproject_source(directory: Path, problems: list[str]) -> _Source:
    for folder in (directory.absolute(), *directory.absolute().parents):
        file = folder / "pyproject.toml"
        try:
            document = tomllib.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            problems.append(f"{file}: cannot be read: {error}")
            return _Source({}, str)
        return _table_source(document, file, problems)
    return _Source({}, str)


def _table_source(document: dict[str, Any], file: Path, problems: list[str]) -> _Source:
    tools = document.get("tool")
    table = tools.get("mqworker", {}) if isinstance(tools, dict) else {}
    if isinstance(table, dict):
        return _Source(table, str, lambda key: f"[tool.mqworker] {key} in {file}", file.parent)
    problems.append(f"[tool.mqworker] in {file}: got {accept.shown(table)}; accepted: a table")
    return _Source({}, str)


def environment_over(defaults: Mapping[str, object]) -> dict[str, str]:
    """The environment, with settings of a framework (by their names in capitals) where it has none itself."""
    given = {f"MQWORKER_{name}": _as_text(value) for name, value in defaults.items() if value is not None}
    # One of the two ways to give a value is enough: that of the environment counts.
    for file, value in VALUE_BY_FILE_SETTING.items():
        pair = {f"MQWORKER_{file.upper()}", f"MQWORKER_{value.upper()}"}
        if pair & os.environ.keys():
            given = {name: text for name, text in given.items() if name not in pair}
    return given | dict(os.environ)


def _as_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def refuse_embedded(settings: Settings) -> None:
    """Raise `ConfigurationError` where a server of our own is wanted and forbidden."""
    if settings.embedded == "never":
        raise ConfigurationError(
            "no Redis is configured, and embedded is never (MQWORKER_EMBEDDED; the pytest plugin says so, "
            "too); accepted is a URL in MQWORKER_REDIS_URL, in a test a bench, or MQWORKER_EMBEDDED=auto"
        )


@dataclass(frozen=True, slots=True)
class ChosenDrain:
    """How long a node may take to stop, and why so long."""

    seconds: float
    why: str


def chosen_drain(
    drain_s: float | None,
    *,
    is_terminal: bool,
    is_first_process: bool,
    environ: Mapping[str, str] | None = None,
) -> ChosenDrain:
    """As set, else a little less than the program that started the node waits before it kills.

    A terminal is looked at before systemd: the shells of a desktop were started by systemd, too.
    """
    environ = os.environ if environ is None else environ
    if drain_s is not None:
        return ChosenDrain(drain_s, "as drain_s says")
    if "HONCHO_PROCESS_NAME" in environ:
        return ChosenDrain(4.0, "Honcho kills 5 s after its first signal")
    if "KUBERNETES_SERVICE_HOST" in environ:
        return ChosenDrain(25.0, "Kubernetes kills after 30 s, unless terminationGracePeriodSeconds is set")
    if is_first_process:
        return ChosenDrain(8.0, "the first process of a container, which is killed after 10 s as a rule")
    if is_terminal:
        return ChosenDrain(float(HOUR_S), "on a terminal; a second Ctrl-C ends what still runs")
    if {"NOTIFY_SOCKET", "INVOCATION_ID"} & environ.keys():
        return ChosenDrain(80.0, "systemd kills after 90 s, unless TimeoutStopSec is set")
    return ChosenDrain(
        4.0, "nothing says how long the program that started the node waits for it; most wait at least 5 s"
    )


@dataclass(frozen=True, slots=True)
class OtelEnvironment:
    """What OpenTelemetry's own variables say of the exporter, beside what its libraries read themselves."""

    has_traces: bool = True
    has_metrics: bool = True
    metrics_every_s: float = 60.0


def otel_environment(environ: Mapping[str, str] | None = None) -> OtelEnvironment:
    """Of OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER only "none" says something to us."""
    given = os.environ if environ is None else environ
    every_ms = given.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    return OtelEnvironment(
        given.get("OTEL_TRACES_EXPORTER") != "none",
        given.get("OTEL_METRICS_EXPORTER") != "none",
        max(int(every_ms), 100) / 1000 if re.fullmatch("[0-9]{1,9}", every_ms) else 60.0,
    )


def systemd_notify_socket(environ: Mapping[str, str] | None = None) -> str | None:
    """Where systemd wants to be told of our state; None when it did not start us, or does not care."""
    return (os.environ if environ is None else environ).get("NOTIFY_SOCKET") or None
