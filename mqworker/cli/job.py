"""`mqworker job`: one message: where it is, why it does not run, and how to stop or repeat it."""

from __future__ import annotations

import click

from mqworker.cli.body_view import body_lines
from mqworker.cli.job_reasons import reasons
from mqworker.cli.site import QUEUE, REDIS_URL, Target
from mqworker.cli.wording import duration, moment, safe, size
from mqworker.errors import MqworkerError
from mqworker.model.delivery import Delivery
from mqworker.queues.work.snapshots import read_system
from mqworker.queues.work.trace import PastEvent, Trace

ID = click.argument("id_", metavar="ID")
_LABEL_WIDTH = 12
_EVENTS_SHOWN = 10


@click.group("job")
@REDIS_URL
@click.pass_context
def job_command(context: click.Context, redis_url: str | None) -> None:
    """Look at one message: why it does not run; cancel or retry it."""
    context.obj = Target(redis_url)


@job_command.command()
@ID
@QUEUE
@click.option("--args", "is_args", is_flag=True, help="Show the arguments too; secrets are masked by name.")
@click.pass_obj
def show(target: Target, id_: str, queue: str | None, is_args: bool) -> None:  # noqa: FBT001 - click's way
    """Show what is known of a message."""
    with target.open() as site:
        found = site.find(id_, queue)[1]
        now_ms = site.now_ms()
    lines = [("job", found.id), ("queue", found.queue), ("state", _state(found))]
    if found.delivery is not None:
        lines += record_lines(found.delivery, now_ms)
        lines += body_lines(found.delivery) if is_args else []
    lines += [(_heading(i), _told(past, now_ms)) for i, past in enumerate(found.past[:_EVENTS_SHOWN])]
    echo_facts(lines)


@job_command.command()
@ID
@QUEUE
@click.pass_obj
def explain(target: Target, id_: str, queue: str | None) -> None:
    """Say why a message is not running."""
    with target.open() as site:
        found = site.find(id_, queue)[1]
        view = read_system(site.store, site.settings.namespace)
    queue_view = next(each for each in view.queues if each.name == found.queue)
    answer, *further = reasons(found, queue_view, view)
    click.echo(f"{found.id}: {answer}")
    for sentence in further:
        click.echo(f"  {sentence}")


@job_command.command()
@ID
@QUEUE
@click.pass_obj
def cancel(target: Target, id_: str, queue: str | None) -> None:
    """Take a waiting message out, or ask a running one to stop."""
    with target.open() as site:
        work, found = site.find(id_, queue)
        if found.where.state in {"ready", "delayed"} and work.cancel(found.id):
            click.echo(f"{found.id} of queue {work.name} is cancelled")
            return
        # It may have been taken between the look and the cancel.
        state = work.find(found.id).state
        if state != "leased":
            raise MqworkerError(f"{found.id} of queue {work.name} is {state}: there is nothing to cancel")
        site.store.run(work.calls.request_cancel(found.id))
    click.echo(f"{found.id} of queue {work.name} is running and was asked to stop")


@job_command.command()
@ID
@QUEUE
@click.pass_obj
def retry(target: Target, id_: str, queue: str | None) -> None:
    """Put a dead message back in line, its counts beginning anew."""
    with target.open() as site:
        work, found = site.find(id_, queue)
        if not work.revive(found.id):
            raise MqworkerError(
                f"{found.id} of queue {work.name} is {_state(found)}: only a dead message can be retried"
            )
    click.echo(f"{found.id} is back in line in queue {work.name}")


def record_lines(delivery: Delivery, now_ms: int) -> list[tuple[str, str]]:
    """What the stored record says, without its body."""
    since = moment(delivery.enqueued_at_ms, now_ms)
    lines = [
        ("task", delivery.task),
        ("enqueued", f"{since} ({duration(now_ms - delivery.enqueued_at_ms)} ago)"),
        (
            "deliveries",
            f"{delivery.deliveries} so far, {delivery.failures} failed, {delivery.crashes} crashed a worker"
            + (f", {delivery.losses} lost with their node" if delivery.losses else ""),
        ),
    ]
    if delivery.priority:
        lines.append(("priority", str(delivery.priority)))
    if delivery.deadline_at_ms is not None:
        lines.append(("deadline", moment(delivery.deadline_at_ms, now_ms)))
    return [*lines, ("body", size(len(delivery.body)))]


def echo_facts(lines: list[tuple[str, str]]) -> None:
    """Labels and texts, aligned."""
    width = max(_LABEL_WIDTH, *(len(label) for label, _ in lines))
    for label, text in lines:
        click.echo(f"{label:<{width}}  {text}".rstrip())


def _state(found: Trace) -> str:
    return "not in the queue any more" if found.where.state == "absent" else found.where.state


def _heading(position: int) -> str:
    return "events" if position == 0 else ""


def _told(past: PastEvent, now_ms: int) -> str:
    facts = past.facts
    words = [moment(past.at_ms, now_ms), past.event]
    if "attempt" in facts:
        words.append(f"attempt {facts['attempt']}")
    if facts.get("worker"):
        words.append(f"by {facts['worker']} of {facts.get('node')}")
    if isinstance(facts.get("run_ms"), int | float):
        words.append(f"in {duration(facts['run_ms'])}")
    if facts.get("error"):
        words.append(f"- {facts['error']}: {facts.get('error_msg', '')}")
    return safe(" ".join(map(str, words)), longest=300)
