"""`mqworker health`: probes for a service manager. Cheap, and never imports the application.

`--live` asks whether the supervisor's loop turns; Redis may be away. `--ready` asks whether this node does
its work: every actor is live, Redis answers, and no drain is under way.
"""

from pathlib import Path

import click

from mqworker.errors import MqworkerError
from mqworker.settings import Settings, load_settings
from mqworker.store.embedded.probe import Mood, ping
from mqworker.store.embedded.state import ServerPlace
from mqworker.supervisor.status_socket import Snapshot, read_snapshots

_ANSWER_S = 2.0


@click.command("health")
@click.option("--live", "question", flag_value="live", help="Does the supervisor's loop turn?")
@click.option("--ready", "question", flag_value="ready", help="Is everything up, and does Redis answer?")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the node's files are.")
@click.option("--redis-url", help="The server of the node.")
def health_command(question: str | None, data_dir: Path | None, redis_url: str | None) -> None:
    """Probe the node of this directory; exit with 0 or 1.

    --live does not need Redis; a supervisor that hangs should be restarted. --ready also fails while an actor
    is being restarted, while Redis is away and during a drain; then send no traffic.
    """
    if question is None:
        raise click.UsageError("one of --live and --ready is needed")
    settings = load_settings({"data_dir": data_dir, "redis_url": redis_url})
    answers = read_snapshots(settings.data_dir, _ANSWER_S)
    problem = _why_not_live(answers, settings)
    if problem is None and question == "ready":
        problem = _why_not_ready(answers) or _why_no_redis(settings)
    click.echo(question if problem is None else f"not {question}: {problem}")
    click.get_current_context().exit(0 if problem is None else 1)


def _why_not_live(answers: dict[str, Snapshot | None], settings: Settings) -> str | None:
    if not answers:
        return f"no supervisor is running for {settings.data_dir}"
    silent = [name for name, snapshot in answers.items() if snapshot is None]
    return f"the supervisor behind {silent[0]} does not answer" if silent else None


def _why_not_ready(answers: dict[str, Snapshot | None]) -> str | None:
    for snapshot in filter(None, answers.values()):
        if snapshot["draining"]:
            return f"{snapshot['node']} is draining"
        for child in snapshot["children"]:
            if child["state"] != "live":
                return f"{child['name']} of {snapshot['node']} is {child['state']}"
            if child["facts"].get("is_listening") is False:
                return f"{child['name']} of {snapshot['node']} does not listen"
    return None


def _why_no_redis(settings: Settings) -> str | None:
    if settings.redis_url is None:
        mood = ping(ServerPlace(settings.data_dir.resolve()).socket_path).mood
        return None if mood is Mood.READY else f"the embedded server is {mood.name.lower()}"
    # The client library takes 100 ms to import: only this question pays for it.
    from mqworker.store.link.address import parse_address  # noqa: PLC0415
    from mqworker.store.link.connection import open_connection  # noqa: PLC0415

    try:
        connection = open_connection(
            parse_address(settings.redis_url),
            connect_timeout_s=min(settings.connect_timeout_s, _ANSWER_S),
            read_timeout_s=min(settings.read_timeout_s, _ANSWER_S),
            client_name="mqworker-health",
        )
        connection.each_primary([("PING",)])
        connection.close()
    except MqworkerError as error:
        return str(error)
    return None
