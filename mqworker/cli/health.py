"""`mqworker health`: probes for a service manager. Cheap, and never imports the application.

`--live` asks whether the supervisor's loop turns; Redis may be away. `--ready` asks whether this node does
its work: every actor is live, Redis answers its beats, and no drain is under way. The usual forms are
answered by `cli/entry.py` already; this is the whole command.
"""

from pathlib import Path

import click

from mqworker.cli.entry import patient_answer
from mqworker.errors import MqworkerError
from mqworker.settings import Settings, load_settings
from mqworker.supervisor.status_socket import read_snapshots

_ANSWER_S = 2.0


@click.command("health")
@click.option("--live", "question", flag_value="live", help="Does the supervisor's loop turn?")
@click.option("--ready", "question", flag_value="ready", help="Is everything up, and does Redis answer?")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the node's files are.")
@click.option("--redis-url", help="With --ready: also ask this server.")
def health_command(question: str | None, data_dir: Path | None, redis_url: str | None) -> None:
    """Probe the node of this directory; exit with 0 or 1.

    --live does not need Redis; a supervisor that hangs should be restarted. --ready also fails while an actor
    is being restarted, while Redis is away and during a drain; then send no traffic.
    """
    if question is None:
        raise click.UsageError("one of --live and --ready is needed")
    settings = load_settings({"data_dir": data_dir, "redis_url": redis_url})
    answer = patient_answer(
        question, lambda _: read_snapshots(settings.data_dir, _ANSWER_S), str(settings.data_dir)
    )
    text, exit_code = answer or ("not known", 1)
    if not exit_code and question == "ready" and redis_url is not None:
        problem = _why_no_redis(settings)
        text, exit_code = (text, exit_code) if problem is None else (f"not ready: {problem}", 1)
    click.echo(text)
    click.get_current_context().exit(exit_code)


def _why_no_redis(settings: Settings) -> str | None:
    # The client library takes 100 ms to import: only this question pays for it.
    from mqworker.store.link.address import parse_address  # noqa: PLC0415
    from mqworker.store.link.connection import open_connection  # noqa: PLC0415

    try:
        connection = open_connection(
            parse_address(str(settings.redis_url)),
            connect_timeout_s=min(settings.connect_timeout_s, _ANSWER_S),
            read_timeout_s=min(settings.read_timeout_s, _ANSWER_S),
            client_name="mqworker-health",
        )
        connection.each_primary([("PING",)])
        connection.close()
    except MqworkerError as error:
        return str(error)
    return None
