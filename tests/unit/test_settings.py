"""Settings: where they come from, what wins, and what an error tells."""

import math
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import ConfigurationError
from mqworker.settings import Settings, load_settings

NOWHERE = Path("/")


def write_pyproject(directory: Path, body: str) -> Path:
    file = directory / "pyproject.toml"
    file.write_text(f"[tool.mqworker]\n{body}\n", encoding="utf-8")
    return file


def problems_of(
    flags: dict[str, object] | None = None,
    *,
    directory: Path = NOWHERE,
    environ: dict[str, str] | None = None,
) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(flags, directory=directory, environ=environ or {})
    return str(caught.value)


def test_without_any_source_the_defaults_hold() -> None:
    settings = load_settings(directory=NOWHERE, environ={})

    assert settings == Settings()


def test_flags_win_over_variables_and_variables_over_pyproject(tmp_path: Path) -> None:
    write_pyproject(tmp_path, "workers = 1\nthreads = 1\nconcurrency = 1")
    environ = {"MQWORKER_WORKERS": "2", "MQWORKER_THREADS": "2"}

    settings = load_settings({"workers": 3}, directory=tmp_path, environ=environ)

    assert (settings.workers, settings.threads, settings.concurrency) == (3, 2, 1)


@pytest.mark.parametrize("absent", [None, ()])
def test_a_flag_that_was_not_given_hides_nothing(absent: object) -> None:
    settings = load_settings({"queues": absent}, directory=NOWHERE, environ={"MQWORKER_QUEUES": "mail"})

    assert settings.queues == ("mail",)


def test_pyproject_is_found_in_a_parent_directory(tmp_path: Path) -> None:
    write_pyproject(tmp_path, "workers = 7")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    settings = load_settings(directory=below, environ={})

    assert settings.workers == 7


def test_the_nearest_pyproject_counts_alone(tmp_path: Path) -> None:
    write_pyproject(tmp_path, "workers = 7")
    below = tmp_path / "a"
    below.mkdir()
    (below / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")

    settings = load_settings(directory=below, environ={})

    assert settings.workers is None


def test_a_relative_path_in_pyproject_is_relative_to_the_file(tmp_path: Path) -> None:
    write_pyproject(tmp_path, 'data_dir = "data"')
    below = tmp_path / "a"
    below.mkdir()

    settings = load_settings(directory=below, environ={})

    assert settings.data_dir == tmp_path / "data"


def test_queues_come_as_text_or_as_a_list(tmp_path: Path) -> None:
    write_pyproject(tmp_path, 'queues = ["mail", "legacy"]')

    listed = load_settings(directory=tmp_path, environ={})
    spelled = load_settings(directory=NOWHERE, environ={"MQWORKER_QUEUES": "mail, legacy,mail"})

    assert listed.queues == spelled.queues == ("mail", "legacy")


def test_words_are_accepted_in_any_case() -> None:
    settings = load_settings(directory=NOWHERE, environ={"MQWORKER_LOG_LEVEL": "INFO"})

    assert settings.log_level == "info"


def test_all_problems_are_listed_at_once_under_the_names_the_user_gave(tmp_path: Path) -> None:
    file = write_pyproject(tmp_path, "workers = 0")

    text = problems_of({"threads": "x"}, directory=tmp_path, environ={"MQWORKER_DRAIN_S": "soon"})

    assert f"[tool.mqworker] workers in {file}: got 0; accepted: a whole number from 1 to 1024" in text
    assert "MQWORKER_DRAIN_S: got 'soon'; accepted: seconds" in text
    assert "--threads: got 'x'; accepted: a whole number" in text


def test_an_unknown_name_gets_a_suggestion_from_each_source(tmp_path: Path) -> None:
    write_pyproject(tmp_path, "wokers = 2")

    text = problems_of({"thread": 1}, directory=tmp_path, environ={"MQWORKER_REDISURL": "redis://u:p@h"})

    assert "did you mean workers?" in text
    assert "MQWORKER_REDISURL: unknown setting; did you mean MQWORKER_REDIS_URL?" in text
    assert "--thread: unknown setting; did you mean --threads?" in text


def test_an_unknown_variable_never_shows_its_value() -> None:
    assert "hunter2" not in problems_of(environ={"MQWORKER_XYZ": "hunter2"})


@pytest.mark.parametrize("body", ["workers = ", "workers = 1\nworkers = 2"])
def test_a_broken_pyproject_is_named(tmp_path: Path, body: str) -> None:
    file = write_pyproject(tmp_path, body)

    assert f"{file}: cannot be read" in problems_of(directory=tmp_path)


def test_a_value_in_place_of_the_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nmqworker = 3\n", encoding="utf-8")

    assert "got 3; accepted: a table" in problems_of(directory=tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://user:p%40ss@localhost:6379/0",
        "rediss://[::1]:6380/1",
        "unix:///run/redis.sock?db=1",
        "redis+sentinel://a:26379,b:26379/main/0",
        "rediss+sentinel://a/main",
        "redis+cluster://a:7000,b:7001",
        "rediss+cluster://u:p@a:7000",
    ],
)
def test_every_form_of_redis_url_is_accepted(url: str) -> None:
    assert load_settings(directory=NOWHERE, environ={"MQWORKER_REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://localhost",
        "redis://",
        "redis://host:port",
        "redis://host:0",
        "redis://host:65536",
        "redis://[::1",
        "redis://u:pa/ss@host",
        "redis://ho st",
        "redis://host\n",
        "unix://",
        "redis+cluster://a:7000,",
    ],
)
def test_a_url_that_does_not_fit_is_refused(url: str) -> None:
    text = problems_of(environ={"MQWORKER_REDIS_URL": url})

    assert "accepted: a URL that starts with one of redis://, rediss://, unix://" in text


def test_a_refused_url_is_shown_without_its_password() -> None:
    text = problems_of(environ={"MQWORKER_REDIS_URL": "http://user:hunter2@host"})

    assert "http://user:***@host" in text
    assert "hunter2" not in text


def test_the_repr_hides_the_password() -> None:
    settings = load_settings({"redis_url": "redis://u:hunter2@host"}, directory=NOWHERE, environ={})

    assert "redis_url='redis://u:***@host'" in repr(settings)
    assert "hunter2" not in f"{settings} {settings!r}"


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().workers = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "name", ["workers", "threads", "max_crashes", "max_losses", "max_message_bytes", "events_kept"]
)
@pytest.mark.parametrize(
    "value",
    [
        True,
        0,
        -1,
        1.5,
        math.nan,
        math.inf,
        "",
        " 7",
        "1_0",
        "٣",
        "+3",
        "1e3",
        "9" * 30,
        pytest.param(10**5000, id="huge"),
    ],
)
def test_a_whole_number_out_of_bounds_or_form_is_refused(name: str, value: object) -> None:
    assert "accepted: a whole number" in problems_of({name: value})


@pytest.mark.parametrize("name", ["drain_s", "heartbeat_interval_s", "result_ttl_s"])
@pytest.mark.parametrize(
    "value", [True, -1, -0.5, math.nan, math.inf, "nan", "inf", "", "1e3", "4s", 10**400]
)
def test_a_duration_out_of_bounds_or_form_is_refused(name: str, value: object) -> None:
    assert "accepted: seconds" in problems_of({name: value})


@pytest.mark.parametrize("value", ["", "a b", "a:b", "{x}", "a\n", "-a", "qu\u0435ue", "a" * 33, 7])
def test_a_name_that_is_unsafe_in_a_key_is_refused(value: object) -> None:
    assert "--namespace: got" in problems_of({"namespace": value})


@pytest.mark.parametrize("value", ["a,,b", "", ",", [], ["a", 1], {"a": 1}])
def test_queues_with_a_bad_member_are_refused(value: object) -> None:
    assert "--queues: got" in problems_of({"queues": value})


@pytest.mark.parametrize("value", ["", " ", "a\0b", 3])
def test_a_path_that_cannot_be_one_is_refused(value: object) -> None:
    assert "--data-dir: got" in problems_of({"data_dir": value})


def test_the_heartbeat_timeout_must_span_three_intervals() -> None:
    text = problems_of(environ={"MQWORKER_HEARTBEAT_INTERVAL_S": "2"})

    assert (
        "heartbeat_timeout_s (default): got 5; accepted: at least 3 times MQWORKER_HEARTBEAT_INTERVAL_S"
        in text
    )


def test_the_heartbeat_rule_forgives_binary_rounding() -> None:
    flags: dict[str, object] = {"heartbeat_interval_s": 0.1, "heartbeat_timeout_s": 0.3}

    assert load_settings(flags, directory=NOWHERE, environ={}).heartbeat_timeout_s == 0.3


def test_the_dedup_window_must_outlive_repeated_calls() -> None:
    text = problems_of({"retry_for_s": 400})

    assert "dedup_window_s (default): got 600; accepted: at least 2 times --retry-for-s" in text


@given(workers=st.integers(1, 1024), drain_s=st.floats(0, 3600))
def test_text_and_typed_values_mean_the_same(workers: int, drain_s: float) -> None:
    environ = {"MQWORKER_WORKERS": str(workers), "MQWORKER_DRAIN_S": f"{drain_s:.6f}"}
    flags: dict[str, object] = {"workers": workers, "drain_s": float(f"{drain_s:.6f}")}

    from_text = load_settings(directory=NOWHERE, environ=environ)
    typed = load_settings(flags, directory=NOWHERE, environ={})

    assert from_text == typed


@given(name=st.sampled_from(sorted(Settings.__dataclass_fields__)), value=st.text(max_size=30))
def test_any_text_is_either_accepted_or_refused_with_its_name(name: str, value: str) -> None:
    variable = f"MQWORKER_{name.upper()}"

    problems = variable
    try:
        load_settings(directory=NOWHERE, environ={variable: value})
    except ConfigurationError as error:
        problems = str(error)

    assert variable in problems
