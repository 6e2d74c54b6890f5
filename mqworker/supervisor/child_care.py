"""Child care: starts the children, hears them, watches over them, collects and restarts them.

Everything is restarted one for one. Workers outlive their dispatcher: the next one is the same consumer, gets
pipes to them, and adopts what they hold. Only when no other will come are they killed, and the reaper
releases what they held.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from mqworker.actors.cpu_wait import CpuWait
from mqworker.actors.frame import NO_MAIL, BrokenFrame
from mqworker.actors.mail import (
    Attach,
    Hello,
    KillWorker,
    Mail,
    NodeShown,
    Ping,
    Pong,
    SnapshotWanted,
    WorkerExited,
)
from mqworker.actors.mailbox import MailboxClosed, MailboxFull, open_pipe
from mqworker.log import Logger
from mqworker.supervisor.child import Child, Ending, start_child
from mqworker.supervisor.child_entry import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_UNAVAILABLE
from mqworker.supervisor.child_plan import Role
from mqworker.supervisor.children import ChildRecord, Children, State
from mqworker.supervisor.consumer_names import ConsumerNames
from mqworker.supervisor.liveness import (
    ChildAction,
    LivenessLimits,
    Vitals,
    check_process,
    check_server,
    check_worker,
)
from mqworker.supervisor.node import Node
from mqworker.supervisor.plain_reasons import (
    NOT_ANSWERING,
    NOT_READING,
    PIPE_CLOSED,
    cause_of,
    reason_of,
    reason_of_signal,
)
from mqworker.supervisor.restart_policy import (
    Death,
    Fault,
    Park,
    RestartIn,
    RestartLimits,
    after_death,
    park_pause_ms,
)

# In one turn, at 4 ms each: in between the loop looks at what else there is.
_MOST_STARTS = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """All time-outs and limits of the supervisor."""

    restart: RestartLimits = field(default_factory=RestartLimits)
    liveness: LivenessLimits = field(default_factory=LivenessLimits)


@dataclass(frozen=True, slots=True)
class Halt:
    """The node cannot go on: the exit code, and the sentence that says why."""

    exit_code: int
    reason: str


class ChildCare:
    """Acts on children. `halt` is set when one of them makes it pointless to go on."""

    def __init__(
        self, children: Children, node: Node, selector: selectors.BaseSelector, limits: Limits, log: Logger
    ) -> None:
        self.halt: Halt | None = None
        self.is_closing = False
        self.has_failures = False
        """Whether an actor failed while the node was stopping."""
        self.parks_broken_workers = False
        """With --reload: a worker whose code does not import waits for the next change of it, from the
        very first start on."""
        self.has_been_complete = False
        """After that, nothing that a child does ends the node."""
        self.on_ready: Callable[[ChildRecord], None] = lambda _record: None
        self.on_shown: Callable[[int], None] = lambda _number: None
        self.on_snapshot_wanted: Callable[[ChildRecord, int], None] = lambda _record, _number: None
        self._children = children
        self._node = node
        self._selector = selector
        self._limits = limits
        self._log = log
        self._chance = random.SystemRandom()
        self._consumers = ConsumerNames(node)
        self._starts_left = _MOST_STARTS

    def turn(self, now_ms: int) -> None:
        """Do what is due: starts, restarts, pings, and killing silent children."""
        self._starts_left = 0 if self.halt is not None else _MOST_STARTS
        for record in self._children:
            if self._starts_left and self._may_start(record, now_ms):
                self._starts_left -= 1
                self._start(record, now_ms)
            if record.child is not None:
                self._check(record, record.child, now_ms)
        if self.is_closing:
            self._release_if_nobody_is_left()

    def _may_start(self, record: ChildRecord, now_ms: int) -> bool:
        # While the node stops, workers still finish what they have, and somebody has to settle it.
        is_wanted = not self.is_closing or (record.role is Role.DISPATCHER and self._children.has_workers)
        return is_wanted and self._children.may_start(record, now_ms)

    @property
    def is_busy(self) -> bool:
        """Whether more children wait to be started than one turn may start."""
        return not self._starts_left and not self.is_closing and self.halt is None

    def tell(self, record: ChildRecord | None, mail: Mail, descriptors: Sequence[int] = ()) -> None:
        """Send mail; dropped if the child is not running: it is told what it needs when it starts."""
        if record is None or record.child is None:
            return
        try:
            record.child.control.send(mail, descriptors)
        except MailboxClosed:
            if descriptors:
                # Dead already, as a rule. If it lives, it has missed a pipe, and cannot do without.
                record.child.process.send(signal.SIGKILL)
        except MailboxFull:
            self.kill(record, NOT_READING, Fault.COUNTED)

    def kill(self, record: ChildRecord, reason: str, fault: Fault) -> None:
        """Kill a child at once; the first reason given is kept."""
        if record.child is None:
            return
        if record.kill_reason is None:
            record.kill_reason, record.kill_fault = reason, fault
        record.child.process.send(signal.SIGKILL)

    # Starting

    def _start(self, record: ChildRecord, now_ms: int) -> None:
        record.generation += 1
        if record.role is Role.DISPATCHER:
            self.tell(self._children.the(Role.REAPER), self._consumers.begin())
        workers = self._children.living_workers if record.role is Role.DISPATCHER else ()
        start = self._node.child_start(record.name, record.generation, self._consumer_of(record), workers)
        record.kill_reason, record.kill_fault = None, Fault.COUNTED
        record.deaf_since_ms = None
        record.vitals = Vitals(now_ms)
        record.begin_anew()
        try:
            record.child = child = start_child(record.plan.start, start)
        except OSError as error:  # no memory or no process left: it may be there in a moment
            self._bury(
                record, Ending(EXIT_UNAVAILABLE, None, 0, f"cannot be started: {reason_of(error)}"), now_ms
            )
            return
        record.state = State.STARTING
        record.cpu_wait = CpuWait(child.process.pid, now_ms)
        self._selector.register(child.control.fileno(), selectors.EVENT_READ, partial(self._hear, record))
        self._selector.register(child.process.fileno(), selectors.EVENT_READ, partial(self._collect, record))
        self._wire(record)
        if record.role is Role.REAPER:
            for mail in self._consumers.briefing():
                self.tell(record, mail)

    def _consumer_of(self, record: ChildRecord) -> str:
        if record.role is not Role.GATEWAY:
            return self._consumers.present
        started = self._consumers.begin_gateway(record.name, record.generation)
        self.tell(self._children.the(Role.REAPER), started)
        return started.consumer

    def _wire(self, record: ChildRecord) -> None:
        """A new pipe to each of its peers: what is left in the old ones belongs to the dead."""
        for peer in self._children.peers_of(record):
            try:
                left, right = open_pipe()
            except OSError as error:  # out of descriptors: as good as not started
                self.kill(record, f"no pipe could be made: {reason_of(error)}", Fault.COUNTED)
                return
            self.tell(record, Attach(peer.name), [left])
            self.tell(peer, Attach(record.name), [right])
            os.close(left)
            os.close(right)

    # Hearing

    def _hear(self, record: ChildRecord, now_ms: int) -> None:
        if record.child is None:
            return
        try:
            mails = record.child.control.receive()
        except BrokenFrame as error:
            self._selector.unregister(record.child.control.fileno())
            self._log.error("frame_broken", child=record.name, reason=str(error))
            self.kill(record, NO_MAIL, Fault.COUNTED)
            return
        except MailboxClosed:
            self._selector.unregister(record.child.control.fileno())
            record.deaf_since_ms = now_ms
            return
        for mail in mails:
            self._take(record, mail, now_ms)

    def _take(self, record: ChildRecord, mail: Mail, now_ms: int) -> None:
        match mail:
            case Hello():
                self._welcome(record, now_ms)
            case Pong(_, progress, facts):
                record.vitals.pinged_at_ms, record.vitals.ponged_at_ms = None, now_ms
                record.note(progress, facts)
            case NodeShown(number):
                self.on_shown(number)
            case KillWorker(worker, reason) if record.role is Role.DISPATCHER:
                self._kill_worker(worker, reason)
            case SnapshotWanted(number) if record.role is Role.MONITOR:
                self.on_snapshot_wanted(record, number)
            case _:
                pass  # Drained: that it is gone is what counts, and the process tells

    def _welcome(self, record: ChildRecord, now_ms: int) -> None:
        if record.state is not State.STARTING:
            return
        record.state = State.LIVE
        record.has_been_ready = True
        record.vitals.ready_at_ms = now_ms
        self.has_been_complete = self.has_been_complete or self._children.is_complete
        self.on_ready(record)

    def _kill_worker(self, name: str, reason: str) -> None:
        worker = self._children.get(name)
        # One that is not ready has nothing to be killed for: the mail was meant for the one before it.
        if worker is not None and worker.role is Role.WORKER and worker.state is State.LIVE:
            self.kill(worker, reason, Fault.SPARED)

    # Watching

    def _check(self, record: ChildRecord, child: Child, now_ms: int) -> None:
        if child.control.has_unsent and record.deaf_since_ms is None:
            with suppress(MailboxClosed):  # its end will be read
                child.control.flush()
        if (
            record.deaf_since_ms is not None
            and now_ms - record.deaf_since_ms >= self._limits.liveness.silent_after_ms
        ):
            self.kill(record, PIPE_CLOSED, Fault.COUNTED)
            return
        match self._action_for(record, now_ms):
            case ChildAction.PING:
                record.vitals.pings += 1
                record.vitals.pinged_at_ms, record.vitals.starved_ms = now_ms, 0
                record.cpu_wait = CpuWait(child.process.pid, now_ms)
                self.tell(record, Ping(record.vitals.pings))
            case ChildAction.ABORT:
                record.vitals.aborted_at_ms = now_ms
                record.kill_reason = record.kill_reason or NOT_ANSWERING
                self._log.error("child_silent", child=record.name, child_pid=child.process.pid)
                child.process.send(signal.SIGABRT)  # it shows its stack and ends
            case ChildAction.KILL:
                child.process.send(signal.SIGKILL)
            case ChildAction.FINE:
                pass

    def _action_for(self, record: ChildRecord, now_ms: int) -> ChildAction:
        check, vitals = _check_of(record.role), record.vitals
        action = check(vitals, self._limits.liveness, now_ms)
        if action is ChildAction.ABORT and record.cpu_wait is not None:
            vitals.starved_ms = record.cpu_wait.ms(now_ms)  # asked only now: it reads some files
            action = check(vitals, self._limits.liveness, now_ms)
        return action

    # Collecting

    def _collect(self, record: ChildRecord, now_ms: int) -> None:
        child = record.child
        if child is None:
            return
        ending = child.reap()
        if ending is None:
            return
        with suppress(MailboxClosed, BrokenFrame):
            for mail in child.control.receive():
                self._take(record, mail, now_ms)
        for descriptor in (child.control.fileno(), child.process.fileno()):
            with suppress(KeyError):  # its pipe broke before
                self._selector.unregister(descriptor)
        child.close()
        record.child = None
        self._bury(record, ending, now_ms)

    def _bury(self, record: ChildRecord, ending: Ending, now_ms: int) -> None:
        if ending.signal is None:
            record.kill_reason = None  # it was quicker
        how = reason_of_signal(ending.cause, self._node.slots_path)
        cause = f"{record.kill_reason} ({how})" if record.kill_reason else how
        record.last_exit, record.cause = cause, cause_of(ending.code, ending.signal, record.kill_reason)
        is_clean = ending.code == 0 and (self.is_closing or record.role is Role.WORKER)
        (self._log.info if is_clean else self._log.warning)(
            "child_ended", child=record.name, generation=record.generation, cause=cause
        )
        self._tell_of_death(record, ending, cause)
        if self.is_closing and not self._is_to_come_back(record, ending):
            record.state = State.ENDED
            self.has_failures = self.has_failures or _is_failure(record, ending)
            return
        record.state = State.WAITING
        halt = self._reason_to_halt(record, ending)
        if halt is not None:
            self._end(halt)
        else:
            self._restart_or_park(record, ending, now_ms)

    def _tell_of_death(self, record: ChildRecord, ending: Ending, cause: str) -> None:
        if record.role is Role.WORKER:
            self.tell(self._children.the(Role.DISPATCHER), WorkerExited(record.name, cause, ending.rss_bytes))
        if record.role is Role.GATEWAY:
            for mail in self._consumers.end_gateway(record.name):
                self.tell(self._children.the(Role.REAPER), mail)
        is_orderly = self.is_closing and ending.code == 0
        if record.role is Role.DISPATCHER and not is_orderly and not self._is_to_come_back(record, ending):
            self._end_workers()
        self._release_if_nobody_is_left()

    def _is_to_come_back(self, record: ChildRecord, ending: Ending) -> bool:
        """Whether a child that has ended is started again, for all we know."""
        if self.halt is not None:
            return False
        is_struck = ending.code != 0 and record.kill_reason is None
        return not self.is_closing or (
            record.role is Role.DISPATCHER and is_struck and self._children.has_workers
        )

    def _end_workers(self) -> None:
        """No other dispatcher is started: what the workers do from now on would not be settled."""
        for worker in self._children.of_role(Role.WORKER):
            self.kill(worker, "the dispatcher ended", Fault.SPARED)

    def _release_if_nobody_is_left(self) -> None:
        dispatcher = self._children.the(Role.DISPATCHER)
        if (self.is_closing or self.halt is not None) and dispatcher is not None and dispatcher.child is None:
            self._consumers.end()
        if not self._children.has_workers:
            for mail in self._consumers.release():
                self.tell(self._children.the(Role.REAPER), mail)

    def _reason_to_halt(self, record: ChildRecord, ending: Ending) -> Halt | None:
        """Only what is wrong from the very first start on: later there is work to go on with."""
        if self.has_been_complete or _is_ready_worker(record) or record.role is Role.MONITOR:
            return None
        reason = ending.words or f"{record.name}: {record.last_exit}"
        if ending.code == EXIT_CONFIGURATION:
            is_awaited = self.parks_broken_workers and record.role is Role.WORKER
            return None if is_awaited else Halt(EXIT_CONFIGURATION, reason)
        if record.role is Role.SERVER and not record.has_been_ready:
            return Halt(ending.code or EXIT_FAILED, reason)  # without it nothing else could begin
        return None

    def _restart_or_park(self, record: ChildRecord, ending: Ending, now_ms: int) -> None:
        limits, chance = self._limits.restart, self._chance.random()
        if record.role is Role.REAPER:
            # Others would take this node for dead, and run what it runs: it is tried again soon.
            limits = replace(limits, longest_park_ms=limits.first_park_ms)
        death = Death(now_ms, now_ms - record.vitals.started_at_ms, _fault_of(record, ending))
        record.history, decision = after_death(record.history, death, limits, chance)
        if ending.code == EXIT_CONFIGURATION and isinstance(decision, RestartIn) and not _is_spared(record):
            # It says itself that another start is of no use.
            parks = record.history.parks
            record.history = replace(record.history, parks=parks + 1)
            decision = Park(park_pause_ms(parks, limits, chance))
        record.restart_at_ms = now_ms + decision.pause_ms
        if isinstance(decision, Park):
            record.state = State.PARKED
            self._log.error(
                "child_parked",
                child=record.name,
                reason=record.last_exit,
                restarts=record.restarts,
                next_try_in_ms=decision.pause_ms,
            )

    def _end(self, halt: Halt) -> None:
        self.halt = self.halt or halt  # the first is the cause, what follows may be its consequence
        dispatcher = self._children.the(Role.DISPATCHER)
        if dispatcher is not None and dispatcher.child is None:
            self._end_workers()
            self._release_if_nobody_is_left()


def _check_of(role: Role) -> Callable[[Vitals, LivenessLimits, int], ChildAction]:
    match role:
        case Role.WORKER:
            return check_worker
        case Role.SERVER:
            return check_server
        case _:
            return check_process


def _is_failure(record: ChildRecord, ending: Ending) -> bool:
    """While stopping: Redis may be away, and who has nothing to settle or release may be killed when late."""
    is_killed_harmlessly = record.kill_reason is not None and record.role in {Role.ACTOR, Role.GATEWAY}
    is_fine = record.role in {Role.WORKER, Role.MONITOR} or is_killed_harmlessly
    return not is_fine and ending.code not in {0, EXIT_UNAVAILABLE}


def _is_ready_worker(record: ChildRecord) -> bool:
    """What it does from now on, whatever its exit code, may be the doing of a task."""
    return record.role is Role.WORKER and record.vitals.ready_at_ms is not None


def _fault_of(record: ChildRecord, ending: Ending) -> Fault:
    """See `restart_policy`: a worker that was ready died of its task, or was meant to go."""
    if record.role is Role.DISPATCHER and record.kill_reason is None and ending.signal == "SIGKILL":
        return Fault.SPARED
    return Fault.SPARED if _is_spared(record) else Fault.COUNTED


def _is_spared(record: ChildRecord) -> bool:
    return _is_ready_worker(record) or (record.kill_reason is not None and record.kill_fault is Fault.SPARED)
