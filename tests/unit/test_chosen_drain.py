"""How long a node drains when nobody said: a little less than whoever started it waits before it kills."""

from __future__ import annotations

import pytest

from mqworker.settings import chosen_drain, load_settings

HONCHO, SYSTEMD, USER_SHELL = (
    {"HONCHO_PROCESS_NAME": "worker.1"},
    {"NOTIFY_SOCKET": "/run/n"},
    {"INVOCATION_ID": "1"},
)
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("environ", "is_terminal", "is_first", "seconds", "word"),
    [
        (HONCHO, False, False, 4.0, "Honcho"),
        (HONCHO, True, False, 4.0, "Honcho"),  # it runs in a terminal, and kills all the same
        (HONCHO | SYSTEMD, False, False, 4.0, "Honcho"),
        (KUBERNETES, False, True, 25.0, "Kubernetes"),
        ({}, False, True, 8.0, "container"),
        ({}, True, False, 3600.0, "terminal"),
        (USER_SHELL, True, False, 3600.0, "terminal"),
        (SYSTEMD, False, False, 80.0, "systemd"),
        (USER_SHELL, False, False, 80.0, "systemd"),
        ({}, False, False, 4.0, "nothing says"),
    ],
)
def test_the_surroundings_decide(
    environ: dict[str, str], *, is_terminal: bool, is_first: bool, seconds: float, word: str
) -> None:
    drain = chosen_drain(None, is_terminal=is_terminal, is_first_process=is_first, environ=environ)

    assert (drain.seconds, word in drain.why) == (seconds, True)


@pytest.mark.parametrize("environ", [HONCHO, KUBERNETES, SYSTEMD, {}])
def test_what_is_set_wins_over_all_surroundings(environ: dict[str, str]) -> None:
    settings = load_settings(environ={"MQWORKER_DRAIN_S": "0"})

    drain = chosen_drain(settings.drain_s, is_terminal=True, is_first_process=True, environ=environ)

    assert drain.seconds == 0
