"""`mqworker audit`: every command that changes something is in it, whether it worked or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from mqworker import App
from mqworker.cli.main import mqworker
from mqworker.model.names import ConsumerName
from mqworker.model.settlement import Bury
from mqworker.settings import Settings
from mqworker.tasks.published_tasks import publish_tasks
from tests.support.command_line import CommandLine
from tests.support.messages import a_message

CHANGING: dict[str, tuple[str, ...]] = {
    "queue pause": ("mail",),
    "queue resume": ("mail",),
    "queue limit": ("mail", "500"),
    "limit set": ("mail", "shop.charge", "8"),
    "limit lift": ("mail", "shop.charge"),
    "limit close": ("mail", "shop.charge", "--for", "10m"),
    "limit open": ("mail", "shop.charge"),
    "queue purge": ("mail", "--yes"),
    "job cancel": ("waits", "-q", "mail"),
    "workflow cancel": ("flow",),
    "job retry": ("died", "-q", "mail"),
    "dead retry": ("died", "-q", "mail"),
    "dead drop": ("died", "-q", "mail", "--yes"),
    "dead purge": ("-q", "mail", "--yes"),
    "rsmq queue create": ("-n", "line"),
    "rsmq queue delete": ("-n", "old"),
    "rsmq message delete": ("-n", "old", "-i", "<id>"),
    "rsmq message visibility": ("-n", "old", "-i", "<id>", "-t", "5"),
    "pipeline release": ("mail",),
    "schedule put": ("acme/a", "--task", "shop.t", "--every", "5"),
    "offload sweep": (),
    "functions install": (),
    "functions remove": (),
    "doctor": ("--remove-quarantined", "--yes"),
}
AUDITED_BY_OPERATE = {
    *("bulk", "dead edit", "job rerun", "strike add", "strike remove"),
    *("schedule pause", "schedule resume", "schedule run-now", "schedule delete", "schedule backfill"),
}
"""The library writes these down, for the console as well: tests/operate/."""
OF_A_DATABASE = {"outbox create", "outbox retry"}
"""They change a database of the application, which no audit of a system is about."""
BESIDE_A_NODE = {"migrate back"}
"""It wants a node that consumes a queue of Celery."""
WORKING = {
    *("rsmq message send", "rsmq message receive", "rsmq message pop"),
    *("pipeline enqueue", "pipeline replay"),
}
"""These are what producers and consumers do all day, and no operation on a system."""
LOOKING = {
    *("queue list", "queue show", "job list", "job show", "job explain", "dead list", "dead show"),
    *("dead causes", "status", "health", "audit", "completion", "acl", "functions list", "rsmq queue list"),
    *("keys new", "keys list", "limit show", "outbox show", "migrate celery"),
    *(
        "explain",
        "stats",
        "strike list",
        "schedule list",
        "schedule show",
        "schedule history",
        "workflow list",
        "workflow show",
    ),
    *("rsmq queue describe", "pipeline report", "pipeline verify", "pipeline archive", "pipeline compact"),
    *("pipeline convert", "pipeline sql", "pipeline trace"),
}
RUNNING = {"run", "serve", "redis", "web", "new"}
"""They start something, or write files; on the server they change nothing by themselves."""


@pytest.fixture
def line(line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("MQWORKER_OFFLOAD", str(tmp_path))
    with line.server.client() as client:
        client.sadd("mqw:queues", b"\xff")
        client.hset("mqw:{flow:flow}:state", "state", "running")
    queue = line.queue("mail")
    queue.enqueue(a_message(id="died"))
    (delivery,) = queue.claim(1, consumer=ConsumerName("node"))
    queue.settle(Bury(delivery, "poison"), consumer=ConsumerName("node"))
    queue.enqueue(a_message(id="waits"))
    line.type("rsmq", "queue", "create", "-n", "old")
    app = App("shop", settings=Settings(redis_url=line.server.url))
    app.task(name="shop.t")(lambda: None)
    publish_tasks(app)
    app.close()
    return line


# Any: what JSON holds.
def deeds(line: CommandLine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(line.type("audit", "--json").output)["deeds"]
    return found


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The whole of each command line without its arguments."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, (*path, name))
    else:
        yield " ".join(path)


def test_of_every_command_it_is_known_whether_it_changes_something() -> None:
    assert set(leaves(mqworker)) == {
        *(*CHANGING, *AUDITED_BY_OPERATE, *OF_A_DATABASE, *BESIDE_A_NODE),
        *(*WORKING, *LOOKING, *RUNNING),
    }


@pytest.mark.parametrize("command", CHANGING)
def test_what_a_command_changes_is_in_the_audit(line: CommandLine, command: str) -> None:
    message = line.type("rsmq", "message", "send", "-n", "old", "-m", "hello").output.strip()
    words = [message if word == "<id>" else word for word in CHANGING[command]]
    before = len(deeds(line))

    done = line.type(*command.split(), *words)

    assert done.exit_code == 0, done.output
    newest, *others = deeds(line)
    assert len(others) == before
    assert newest["outcome"].split(";")[0] in " ".join(done.output.split())
    assert newest["command"].startswith(f"mqworker {command}")
    assert "(command line)" in newest["who"]
    if "mail" in words:
        assert newest["queue"] == "mail"


@pytest.mark.parametrize(
    "words",
    [("job", "cancel", "died", "-q", "mail"), ("rsmq", "queue", "delete", "-n", "none")],
    ids=" ".join,
)
def test_what_failed_is_in_the_audit_too(line: CommandLine, words: tuple[str, ...]) -> None:
    refused = line.type(*words)

    assert refused.exit_code == 1
    assert deeds(line)[0]["outcome"].startswith("failed: ")
    assert deeds(line)[0]["count"] == 0


def test_what_was_not_confirmed_is_not_in_the_audit(line: CommandLine) -> None:
    before = deeds(line)

    line.type("queue", "purge", "mail", answer="n\n")

    assert deeds(line) == before


def test_what_cannot_be_written_down_is_done_and_said(line: CommandLine) -> None:
    with line.server.client() as client:
        client.delete("mqw:audit")
        client.set("mqw:audit", "of another type")

    done = line.type("queue", "pause", "mail")

    assert done.exit_code == 0
    assert line.queue("mail").counts().is_paused
    assert "could not be written to the audit" in done.output
