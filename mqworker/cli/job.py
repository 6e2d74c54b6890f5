"""`mqworker job`: one message: where it is, why it does not run, and how to stop or repeat it."""

from __future__ import annotations

import json
import time

import click

from mqworker.cli.audited import audited, who
from mqworker.cli.job_list import list_command
from mqworker.cli.server import JSON, QUEUE, Server, Target, server_group
from mqworker.cli.text import duration, moment, safe, size
from mqworker.cli.workflow import workflow_lines
from mqworker.errors import InvalidMessage, MqworkerError
from mqworker.model.clock import SystemClock
from mqworker.model.delivery import Delivery
from mqworker.model.event import ENQUEUED
from mqworker.model.names import MessageId
from mqworker.model.value_codec import unpack
from mqworker.operate.body import body_lines, read_secrets, shown_value
from mqworker.operate.documents import job_document
from mqworker.operate.edit import rerun
from mqworker.operate.job_view import read_job, tags_of
from mqworker.operate.lake import find_in_lake
from mqworker.operate.outbox import outbox_tells
from mqworker.operate.reasons import reasons
from mqworker.operate.visible_body import BodyHidden, kept_as, visible_value
from mqworker.operate.workflows import cancel_workflow, find_workflow
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.snapshots import read_nodes, read_system
from mqworker.queues.work.steps import WorkQueueSteps
from mqworker.queues.work.trace import PastEvent, Trace
from mqworker.tasks.job import CANCEL_TIMEOUT_S
from mqworker.tasks.job_steps import Cancelling, JobSteps
from mqworker.tasks.running.job_log import LogLine, read_log

_UNCOMMITTED = "; its transaction may not have committed: the outbox has no row of it either"
ID = click.argument("id_", metavar="ID")
_LABEL_WIDTH = 12
_EVENTS_SHOWN = 10
_ASK_AGAIN_MS = 1_000
_LOOK_EVERY_S = 0.05


@server_group("job")
def job_command() -> None:
    """Look at one message: why it does not run; cancel or retry it."""


job_command.add_command(list_command)


@job_command.command()
@ID
@QUEUE
@click.option("--args", "is_args", is_flag=True, help="Show the arguments too; secrets are masked by name.")
@JSON
@click.pass_obj
def show(target: Target, id_: str, queue: str | None, *, is_args: bool, is_json: bool) -> None:
    """Show what is known of a message."""
    if is_json:
        with target.open() as server:
            click.echo(json.dumps(job_document(read_job(server, id_, queue), has_arguments=is_args)))
        return
    with target.open() as server:
        try:
            work, found = server.find(id_, queue)
        except MqworkerError:
            if (flow := find_workflow(server, id_)) is not None:
                click.echo("\n".join(workflow_lines(flow)))
                return
            if (archived := find_in_lake(server, id_, queue)) is None:
                raise
            echo_facts(archived_lines(archived, server.now_ms(), str(server.settings.lake)))
            return
        now_ms = server.now_ms()
        running = running_lines(server, work, found, now_ms) if found.where.state == "leased" else []
        log = read_log(work, found.id)
        secrets = read_secrets(server.store, server.settings.namespace)
    lines = [("job", found.id), ("queue", found.queue), ("state", _state(found))]
    tags = tags_of(found)
    lines += [("tags", " ".join(tags))] if tags else []
    if found.delivery is not None:
        lines += record_lines(found.delivery, now_ms, is_held=found.where.state == "leased")
        lines += body_lines(found.delivery, secrets) if is_args else []
    elif found.past:
        lines += past_lines(found, now_ms)
    lines += running
    if found.where.result is not None:
        lines.append(("result", result_text(found.where.result)))
    lines += [(_heading(i), _told(past, now_ms)) for i, past in enumerate(found.past[:_EVENTS_SHOWN])]
    lines += [("" if i else "log", _logged(line, now_ms)) for i, line in enumerate(log)]
    echo_facts(lines)


@job_command.command()
@ID
@QUEUE
@JSON
@click.pass_obj
def explain(target: Target, id_: str, queue: str | None, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Say why a message is not running."""
    with target.open() as server:
        try:
            found = server.find(id_, queue)[1]
        except MqworkerError as unknown:
            if (told := outbox_tells(server.settings, id_)) is None:
                raise MqworkerError(
                    f"{unknown}{_UNCOMMITTED if server.settings.outbox_url else ''}"
                ) from None
            click.echo(json.dumps({"id": id_, "explanation": [told]}) if is_json else f"{id_}: {told}")
            return
        view = read_system(server.store, server.settings.namespace)
    queue_view = next(each for each in view.queues if each.name == found.queue)
    answer, *further = reasons(found, queue_view, view)
    if is_json:
        click.echo(json.dumps({"id": found.id, "queue": found.queue, "explanation": [answer, *further]}))
        return
    click.echo(f"{found.id}: {answer}")
    for sentence in further:
        click.echo(f"  {sentence}")


@job_command.command()
@ID
@QUEUE
@click.option(
    "--kill", "is_kill", is_flag=True, help="End the worker that runs it; what else runs there runs again."
)
@click.option(
    "--timeout", "timeout_s", type=float, default=CANCEL_TIMEOUT_S, show_default=True,
    help="Seconds to wait until a running task has stopped.",
)  # fmt: skip
@click.option("--tree", "is_tree", is_flag=True, help="And all that it has spawned.")
@click.pass_obj
def cancel(
    target: Target, id_: str, queue: str | None, *, is_kill: bool, timeout_s: float, is_tree: bool
) -> None:
    """Take a waiting message out, or stop a running one."""
    with target.open() as server:
        work, found = server.find(id_, queue)
        flags = [flag for flag, is_set in (("--kill", is_kill), ("--tree", is_tree)) if is_set]
        words = (found.id, "-q", work.name, *flags)
        with audited(server, "job cancel", *words, queue=work.name, what=found.id) as doing:
            was_tree = is_tree and cancel_workflow(server, found.id)
            state = cancel_and_wait(
                work, found.id, server.settings.namespace, is_kill=is_kill, timeout_s=timeout_s
            )
            if was_tree and state is Cancelling.ENDED:
                doing.tell(f"all that {found.id} of queue {work.name} has spawned is cancelled")
            elif state is not Cancelling.CANCELLED:
                raise _not_cancelled(state, work, found.id, is_kill=is_kill, timeout_s=timeout_s)
            else:
                doing.tell(f"{found.id} of queue {work.name} is cancelled")


def _not_cancelled(
    state: Cancelling, work: WorkQueue, message: MessageId, *, is_kill: bool, timeout_s: float
) -> MqworkerError:
    name = f"{message} of queue {work.name}"
    if state is Cancelling.ENDED:
        now = "running" if (where := work.find(message).state) == "leased" else where
        return MqworkerError(f"{name} is {now}: there is nothing to cancel")
    return MqworkerError(
        f"{name} was asked to stop and still runs after {timeout_s:g} s; it is not retried. "
        + ("Is its node alive?" if is_kill else "`--kill` ends the worker that runs it")
    )


def cancel_and_wait(
    work: WorkQueue, message: MessageId, namespace: str, *, is_kill: bool, timeout_s: float
) -> Cancelling:
    """Cancel a message; where it runs, look until it has stopped. The wish may be lost: it is repeated."""
    clock, steps = SystemClock(), JobSteps(WorkQueueSteps(work.calls, namespace))
    until_ms, ask_at_ms = clock.monotonic_ms() + round(timeout_s * 1000), 0
    state = Cancelling.ENDED
    while True:
        if clock.monotonic_ms() >= ask_at_ms:
            state = work.store.follow(steps.cancel(message, kill=is_kill))
            ask_at_ms = clock.monotonic_ms() + _ASK_AGAIN_MS
        if state is not Cancelling.ASKED:
            return state
        if (where := work.find(message).state) != "leased":
            return Cancelling.CANCELLED if where == "cancelled" else Cancelling.ENDED
        if clock.monotonic_ms() >= until_ms:
            return Cancelling.ASKED
        time.sleep(_LOOK_EVERY_S)


@job_command.command()
@ID
@QUEUE
@click.pass_obj
def retry(target: Target, id_: str, queue: str | None) -> None:
    """Put a dead message back in line, its counts beginning anew."""
    with target.open() as server:
        work, found = server.find(id_, queue)
        with audited(server, "job retry", found.id, "-q", work.name, queue=work.name, what=found.id) as doing:
            if not work.revive(found.id):
                raise MqworkerError(
                    f"{found.id} of queue {work.name} is {_state(found)}: only a dead message can be retried"
                )
            doing.tell(f"{found.id} is back in line in queue {work.name}")


@job_command.command("rerun")
@ID
@QUEUE
@click.option("--args", metavar="JSON", help="Of one that is not dead: its arguments by position.")
@click.option("--kwargs", metavar="JSON", help="Of one that is not dead: its arguments by name.")
@click.pass_obj
def rerun_(target: Target, id_: str, queue: str | None, *, args: str | None, kwargs: str | None) -> None:
    """Run a job again that has ended.

    A dead one runs as it is. Of the others arguments are not kept: with --args or --kwargs the same task is
    called anew, as another job.
    """
    with target.open() as server:
        click.echo(rerun(server, id_, queue, who(), args=args, kwargs=kwargs))


def running_lines(server: Server, work: WorkQueue, found: Trace, now_ms: int) -> list[tuple[str, str]]:
    """Who runs it and since when, as far as its node tells, and how far it has come."""
    consumer, lines = found.where.consumer, []
    nodes = read_nodes(server.store, server.settings.namespace)
    for node in nodes:
        if (runner := node.runner_of(found.id)) is not None:
            worker, age_ms = runner
            since = moment(now_ms - age_ms, now_ms)
            lines.append(("worker", f"{safe(worker)} of node {safe(node.name)}"))
            lines.append(("running", f"since {since} ({duration(age_ms)})"))
    if not lines:
        lines.append(("held by", safe(consumer) if consumer else "a lease that expires"))
    progress = server.store.follow(
        JobSteps(WorkQueueSteps(work.calls, server.settings.namespace)).progress(found.id)
    )
    if progress is not None:
        of = "" if progress.total is None else f" of {progress.total:g}"
        share = "" if progress.share is None else f" ({progress.share:.0%})"
        lines.append(("progress", f"{progress.done:g}{of}{share}"))
    if found.is_stop_requested:
        lines.append(("cancel", "asked to stop, still running; `mqworker job cancel --kill` ends its worker"))
    return lines


def archived_lines(found: Trace, now_ms: int, lake: str) -> list[tuple[str, str]]:
    """What the lake tells of a job that Redis has forgotten."""
    lines = [("job", found.id), ("queue", found.queue), ("state", found.past[0].event)]
    lines += [("source", f"the lake, {lake}: Redis has forgotten it"), *past_lines(found, now_ms)]
    return lines + [(_heading(i), _told(past, now_ms)) for i, past in enumerate(found.past[:_EVENTS_SHOWN])]


def past_lines(found: Trace, now_ms: int) -> list[tuple[str, str]]:
    """What the events still tell of a message that has ended: its task and its times."""
    tasks = [past.facts["task"] for past in found.past if past.facts.get("task")]
    lines = [("task", safe(str(tasks[0])))] if tasks else []
    enqueued = next((past for past in found.past if past.event == ENQUEUED), None)
    end = found.past[0]
    if enqueued is not None:
        lines.append(
            ("enqueued", f"{moment(enqueued.at_ms, now_ms)} ({duration(now_ms - enqueued.at_ms)} ago)")
        )
    lines.append(("ended", f"{moment(end.at_ms, now_ms)} ({duration(now_ms - end.at_ms)} ago)"))
    run_ms = end.facts.get("run_ms")
    if isinstance(run_ms, int | float):
        lines.append(("ran for", duration(run_ms)))
    return lines


def result_text(result: bytes) -> str:
    """What the task returned."""
    try:
        return shown_value(unpack(visible_value(result)))
    except BodyHidden as hidden:
        return str(hidden)
    except InvalidMessage:
        return f"{size(len(result))} that cannot be read"


def record_lines(delivery: Delivery, now_ms: int, *, is_held: bool = False) -> list[tuple[str, str]]:
    """What the stored record says, without its body; somebody who holds it is at one more attempt."""
    since = moment(delivery.enqueued_at_ms, now_ms)
    failed = f"{delivery.failures} failed, {delivery.crashes} crashed a worker"
    failed += f", {delivery.losses} lost with their node" if delivery.losses else ""
    lines = [
        ("task", delivery.task),
        ("enqueued", f"{since} ({duration(now_ms - delivery.enqueued_at_ms)} ago)"),
        ("attempt", f"{delivery.attempt}; before: {failed}")
        if is_held
        else ("deliveries", f"{delivery.deliveries} so far, {failed}"),
    ]
    if delivery.priority:
        lines.append(("priority", str(delivery.priority)))
    if delivery.deadline_at_ms is not None:
        lines.append(("deadline", moment(delivery.deadline_at_ms, now_ms)))
    kept = kept_as(delivery.body)
    return [*lines, ("body", size(len(delivery.body)) + (f", {kept}" if kept else ""))]


def echo_facts(lines: list[tuple[str, str]]) -> None:
    """Labels and texts, aligned."""
    width = max(_LABEL_WIDTH, *(len(label) for label, _ in lines))
    for label, text in lines:
        click.echo(f"{label:<{width}}  {text}".rstrip())


def _state(found: Trace) -> str:
    return "not in the queue any more" if found.where.state == "absent" else found.where.state


def _heading(position: int) -> str:
    return "events" if position == 0 else ""


def _logged(line: LogLine, now_ms: int) -> str:
    return f"{moment(line.at_ms, now_ms)} {safe(line.level)} {safe(line.text, longest=300)}"


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
