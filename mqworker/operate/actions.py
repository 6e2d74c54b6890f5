"""What people may do: each action with its preview, the command that does the same, and a line in the audit.

An action that is repeated, or was killed half way, does what is left of it and nothing twice.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.names import MessageId, message_id, queue_name, shown
from mqworker.operate.audit import Deed, note
from mqworker.operate.causes import ids_of_cause
from mqworker.operate.schedules import (
    backfill_schedule,
    delete_schedule,
    moment_ms,
    pause_schedule,
    read_schedule,
    resume_schedule,
    run_schedule_now,
    ticks_to_backfill,
)
from mqworker.operate.system import System
from mqworker.operate.wording import counted
from mqworker.queues.work.drop import drop
from mqworker.queues.work.steps import WAITING
from mqworker.queues.work.trace import read_letter

_BACKFILL_WORDS = 3


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: an action on a queue, and on which message or cause where it needs one."""

    action: str
    queue: str
    what: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What would happen, before it does."""

    request: Request
    title: str
    effect: str
    count: int
    command: str
    is_destructive: bool


@dataclass(frozen=True, slots=True)
class _Action:
    title: str
    command: str
    look: Callable[[System, Request], tuple[int, str]]
    """How many it would touch, and the sentence that says so."""
    act: Callable[[System, Request], tuple[int, str]]
    """How many it touched, and the sentence that says so."""
    is_destructive: bool = False


def preview(system: System, request: Request) -> Preview:
    """What the action would do; raises what tells that it cannot be done. It only reads."""
    action = _action(request)
    count, effect = action.look(system, request)
    return Preview(
        request, _filled(action.title, request), effect, count, command_of(request), action.is_destructive
    )


def act(system: System, request: Request, who: str) -> str:
    """Do it and write it down, whether it worked or not; a sentence that says what happened."""
    action = _action(request)
    try:
        count, outcome = action.act(system, request)
    except MqworkerError as error:
        note(system, _deed(request, who, 0, f"failed: {error}"))
        raise
    note(system, _deed(request, who, count, outcome))
    return outcome


def command_of(request: Request) -> str:
    """The command line that does the same."""
    return _filled(_action(request).command, request, shlex.quote)


def _action(request: Request) -> _Action:
    action = ACTIONS.get(request.action)
    if action is None:
        raise InvalidArgument(f"action is {shown(request.action)}; accepted are {', '.join(ACTIONS)}")
    queue_name(request.queue)
    return action


def _filled(pattern: str, request: Request, quote: Callable[[str], str] = str) -> str:
    words = " ".join(quote(word) for word in request.what.split())
    return pattern.format(queue=quote(request.queue), what=quote(request.what), words=words)


def _deed(request: Request, who: str, count: int, outcome: str) -> Deed:
    return Deed(who, request.action, request.queue, request.what, count, outcome, command_of(request))


def _look_at_queue(system: System, request: Request) -> tuple[int, str]:
    counts = system.queue(request.queue).counts()
    state = "paused" if counts.is_paused else "handing out"
    return counts.waiting, f"Queue {request.queue} is {state}; {counted(counts.waiting, 'message')} in it."


def _pause(system: System, request: Request) -> tuple[int, str]:
    queue = system.queue(request.queue)
    # When instead of a mere 1: so that everybody can say since when.
    system.store.run(queue.calls.configure(paused=str(system.now_ms())))
    return 1, f"queue {request.queue} is paused"


def _resume(system: System, request: Request) -> tuple[int, str]:
    system.queue(request.queue).resume()
    return 1, f"queue {request.queue} hands out messages again"


def _look_at_schedule(system: System, request: Request) -> tuple[int, str]:
    _, view = read_schedule(system, request.what)
    state = "paused" if view.paused_at_ms is not None else "firing"
    return 1, f"Schedule {view.name} ({view.timing}) is {state}; it calls {view.task} in queue {view.queue}."


def _pause_schedule(system: System, request: Request) -> tuple[int, str]:
    was_firing = pause_schedule(system, request.what)
    return int(was_firing), f"schedule {request.what} {'is' if was_firing else 'was already'} paused"


def _resume_schedule(system: System, request: Request) -> tuple[int, str]:
    was_paused = resume_schedule(system, request.what)
    told = "fires again, from its next tick on" if was_paused else "was not paused"
    return int(was_paused), f"schedule {request.what} {told}"


def _run_schedule(system: System, request: Request) -> tuple[int, str]:
    message, is_new = run_schedule_now(system, request.what)
    told = (
        f"is job {message}" if is_new else f"was not run: its task is unique, and {message} is there already"
    )
    return int(is_new), f"the call of schedule {request.what} {told}"


def _look_at_deletion(system: System, request: Request) -> tuple[int, str]:
    _, view = read_schedule(system, request.what)
    if not view.is_data:
        raise MqworkerError(
            f"schedule {view.name} belongs to the code of app {view.owner}: remove it there, or pause it"
        )
    return 1, f"Schedule {view.name} ({view.timing}) and its history go; calls in line already run."


def _delete_schedule(system: System, request: Request) -> tuple[int, str]:
    if not delete_schedule(system, request.what):
        raise MqworkerError(f"there is no schedule {shown(request.what)}: it may be gone already")
    return 1, f"schedule {request.what} is deleted"


def _look_at_backfill(system: System, request: Request) -> tuple[int, str]:
    name, from_ms, to_ms = _backfill_of(request)
    count = ticks_to_backfill(system, name, from_ms, to_ms)
    return count, f"{counted(count, 'tick')} of schedule {name} will be called for, fired or not."


def _backfill(system: System, request: Request) -> tuple[int, str]:
    name, from_ms, to_ms = _backfill_of(request)
    found = backfill_schedule(system, name, from_ms, to_ms)
    kept_out = f"; {found.kept_out:,} were there already" if found.kept_out else ""
    return len(found.ids), f"{counted(len(found.ids), 'call')} of schedule {name} in line{kept_out}"


def _backfill_of(request: Request) -> tuple[str, int, int]:
    """`what` is the name and two moments, with a space between them."""
    words = request.what.split()
    if len(words) != _BACKFILL_WORDS:
        raise InvalidArgument(
            f"what is {shown(request.what)}; accepted are a schedule and two moments, such as "
            "acme/nightly 2026-03-01T00:00Z 2026-03-02T00:00Z"
        )
    name, start, end = words
    return name, moment_ms("from", start), moment_ms("to", end)


def _look_at_job(system: System, request: Request) -> tuple[int, str]:
    _, found = system.find(request.what, request.queue)
    match found.where.state:
        case "ready" | "delayed" | "limited":
            return 1, "It waits, and will be taken out of its queue. This cannot be undone."
        case "leased":
            return 1, "It runs. Its task is asked to stop; how soon depends on the task."
        case state:
            raise MqworkerError(f"{found.id} of queue {request.queue} is {state}: there is nothing to cancel")


def _cancel(system: System, request: Request) -> tuple[int, str]:
    work = system.queue(request.queue)
    message = message_id(request.what)
    if work.find(message).state in WAITING and work.cancel(message):
        return 1, f"{message} of queue {work.name} is cancelled"
    state = work.find(message).state  # it may have been taken between the look and the cancel
    if state != "leased":
        raise MqworkerError(f"{message} of queue {work.name} is {state}: there is nothing to cancel")
    system.store.run(work.calls.request_cancel(message))
    return 1, f"{message} of queue {work.name} is running and was asked to stop"


def _look_at_letter(system: System, request: Request) -> tuple[int, str]:
    letter = read_letter(system.queue(request.queue), message_id(request.what))
    if letter is None:
        raise MqworkerError(f"no dead letter {request.what} in queue {request.queue}: it may be gone already")
    return 1, f"It died of {letter.error or letter.reason}."


def _look_at_cause(system: System, request: Request) -> tuple[int, str]:
    count = len(ids_of_cause(system, request.queue, request.what))
    return count, f"{counted(count, 'dead letter')} of queue {request.queue} died of this cause."


def _retry(system: System, request: Request) -> tuple[int, str]:
    return _revive(system, request, [message_id(request.what)])


def _retry_cause(system: System, request: Request) -> tuple[int, str]:
    return _revive(system, request, ids_of_cause(system, request.queue, request.what))


def _revive(system: System, request: Request, ids: list[MessageId]) -> tuple[int, str]:
    back = len(system.queue(request.queue).revive(*ids))
    if not back:
        raise MqworkerError(f"none of them is dead in queue {request.queue} any more")
    return back, f"{counted(back, 'dead letter')} of queue {request.queue} back in line"


def _drop(system: System, request: Request) -> tuple[int, str]:
    return _throw(system, request, [message_id(request.what)])


def _drop_cause(system: System, request: Request) -> tuple[int, str]:
    return _throw(system, request, ids_of_cause(system, request.queue, request.what))


def _throw(system: System, request: Request, ids: list[MessageId]) -> tuple[int, str]:
    gone = len(drop(system.queue(request.queue), ids, events_kept=system.settings.events_kept))
    if not gone:
        raise MqworkerError(f"none of them is dead in queue {request.queue} any more")
    return gone, f"{counted(gone, 'dead letter')} of queue {request.queue} thrown away"


ACTIONS = {
    "pause": _Action("Pause queue {queue}", "mqworker queue pause {queue}", _look_at_queue, _pause),
    "resume": _Action("Resume queue {queue}", "mqworker queue resume {queue}", _look_at_queue, _resume),
    "cancel": _Action(
        "Cancel {what}",
        "mqworker job cancel {what} -q {queue}",
        _look_at_job,
        _cancel,
        is_destructive=True,
    ),
    "pause-schedule": _Action(
        "Pause schedule {what}", "mqworker schedule pause {what}", _look_at_schedule, _pause_schedule
    ),
    "resume-schedule": _Action(
        "Resume schedule {what}", "mqworker schedule resume {what}", _look_at_schedule, _resume_schedule
    ),
    "run-schedule": _Action(
        "Run schedule {what} now", "mqworker schedule run-now {what}", _look_at_schedule, _run_schedule
    ),
    "delete-schedule": _Action(
        "Delete schedule {what}",
        "mqworker schedule delete {what}",
        _look_at_deletion,
        _delete_schedule,
        is_destructive=True,
    ),
    "backfill-schedule": _Action(
        "Make up for ticks: {what}",
        "mqworker schedule backfill {words}",
        _look_at_backfill,
        _backfill,
    ),
    "retry": _Action(
        "Put {what} back in line", "mqworker dead retry {what} -q {queue}", _look_at_letter, _retry
    ),
    "drop": _Action(
        "Throw {what} away",
        "mqworker dead drop {what} -q {queue}",
        _look_at_letter,
        _drop,
        is_destructive=True,
    ),
    "retry-cause": _Action(
        "Put all of this cause back in line",
        "mqworker dead retry --cause {what} -q {queue}",
        _look_at_cause,
        _retry_cause,
    ),
    "drop-cause": _Action(
        "Throw all of this cause away",
        "mqworker dead drop --cause {what} -q {queue}",
        _look_at_cause,
        _drop_cause,
        is_destructive=True,
    ),
}
