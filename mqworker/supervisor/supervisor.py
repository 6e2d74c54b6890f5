"""Supervisor: starts, wires, watches, restarts and stops the actors of one node; answers `status`.

Owns:     the processes of all children, and the pipes until they are handed over.
Receives: Hello, Pong, Drained (all); NodeShown (actors); KillWorker (dispatcher); SnapshotWanted (monitor);
          signals.
Sends:    Attach, Ping, Drain (all); WorkerExited, RetireWorker (dispatcher);
          ConsumerStarted, ConsumerGone (heartbeat reaper); NodeSnapshot (an actor that lives, monitor).
Never:    holds a connection to Redis, a second thread or user code: it is forked again and again.

One loop over the ends of processes, control pipes, signals and the status socket. It never waits for anybody.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import selectors
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self, assert_never

from mqworker.actors.mail import Drain, NodeSnapshot
from mqworker.log import Logger
from mqworker.model.clock import Clock
from mqworker.settings import chosen_drain
from mqworker.supervisor.child_care import ChildCare, Halt, Limits
from mqworker.supervisor.child_entry import EXIT_FAILED, STACK_DUMP_SIGNAL
from mqworker.supervisor.child_plan import Role, Topology
from mqworker.supervisor.children import ChildRecord, Children, State, node_snapshot
from mqworker.supervisor.import_check import ImportCheck
from mqworker.supervisor.node import Node
from mqworker.supervisor.restart_policy import Fault
from mqworker.supervisor.rolling_restart import RollingRestart
from mqworker.supervisor.shutdown import KillChild, Shutdown, TellToDrain
from mqworker.supervisor.source_watch import SourceWatch, watch_application
from mqworker.supervisor.status_socket import Snapshot, StatusSocket
from mqworker.supervisor.systemd import SystemdNotifier

_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
# Ends and mail wake the loop; this is only for what time brings, and shorter while something is about to.
_TICK_MS = 250
_BUSY_TICK_MS = 5
_LONGEST_GAP_MS = 200
_SHOW_EVERY_MS = 1_000
_SHOWN_WITHIN_MS = 2_000
# With --reload: so long a running task may keep its worker from being replaced.
_LONGEST_PATIENCE_MS = 4_000


class Supervisor:
    """One node's supervisor. `run` returns the exit code of `mqworker run`."""

    def __init__(
        self,
        topology: Topology,
        node: Node,
        directory: Path,
        *,
        clock: Clock,
        log: Logger,
        limits: Limits | None = None,
        notifier: SystemdNotifier | None = None,
        source_watch: SourceWatch | None = None,
        on_ready: Callable[[ChildRecord], None] | None = None,
    ) -> None:
        """`directory` is where the status socket goes. `on_ready` is called when a child is."""
        self._node = node
        self._directory = directory
        self._clock = clock
        self._log = log
        self._notifier = notifier or SystemdNotifier(None)
        self._source_watch = source_watch
        self._on_ready = on_ready
        self._selector = selectors.DefaultSelector()
        self._children = Children(topology)
        limits = limits or Limits()
        self._care = ChildCare(self._children, node, self._selector, limits, log)
        self._tick_ms = min(_TICK_MS, limits.liveness.ping_every_ms)
        self._care.on_ready = self._note_ready
        self._care.on_shown = self._note_shown
        self._care.on_snapshot_wanted = self._answer_monitor
        self._care.parks_broken_workers = source_watch is not None
        self._terminal = next((number for number in (0, 1, 2) if os.isatty(number)), None)
        self._drain = chosen_drain(
            node.settings.drain_s, is_terminal=self._terminal is not None, is_first_process=os.getpid() == 1
        )
        patience_ms = None if source_watch is None else min(_LONGEST_PATIENCE_MS, self._drain_ms)
        self._import_check = ImportCheck(
            node, self._selector, longest_ms=limits.liveness.worker_ready_within_ms, log=log
        )
        self._rolling = RollingRestart(
            self._children,
            self._care,
            self._import_check,
            lambda: watch_application(node.app, Path.cwd()),
            patience_ms,
            log=log,
        )
        self._shutdown: Shutdown | None = None
        self._started_at_ms = clock.now_ms()
        self._shown_at_ms = -_SHOW_EVERY_MS
        self._writer: ChildRecord | None = None
        """Who shows the node in Redis at the moment."""
        self._snapshots = 0
        self._complete_since: tuple[int, int] | None = None
        """The first snapshot with everybody there, and when that was."""
        self._is_announced = False

    @property
    def _drain_ms(self) -> int:
        return int(self._drain.seconds * 1000)

    @property
    def halt(self) -> Halt | None:
        """Why the node could not go on, None when it was asked to stop."""
        return self._care.halt

    def run(self) -> int:
        """Run the node until it is stopped; no process is left then."""
        with ExitStack() as closing:
            inbox = closing.enter_context(SignalInbox())
            self._selector.register(
                inbox, selectors.EVENT_READ, lambda now_ms: self._hear_signals(inbox, now_ms)
            )
            self._open_status_socket(closing)
            closing.callback(self._selector.close)
            closing.callback(self._remove_slots)
            # The line also imports what writing it takes, once for all children. What is there now stays as
            # it is: they share its memory instead of touching it all.
            self._log.info("node_starting", node=self._node.name, app=self._node.app)
            gc.collect()
            gc.freeze()
            self._loop()
        return self._exit_code()

    def _remove_slots(self) -> None:
        with suppress(OSError):  # never made, or its directory is missing
            Path(self._node.slots_path).unlink()

    def _loop(self) -> None:
        before_ms = self._clock.monotonic_ms()
        self._turn(before_ms)
        while self._shutdown is None or any(record.child is not None for record in self._children):
            tick_ms = self._longest_wait_ms(before_ms)
            events = self._selector.select(tick_ms / 1000)
            now_ms = self._clock.monotonic_ms()
            if now_ms - before_ms > tick_ms + _LONGEST_GAP_MS:
                self._log.warning("loop_lagged", gap_ms=now_ms - before_ms - tick_ms)
            before_ms = now_ms
            for key, _ in events:
                key.data(now_ms)
            self._turn(now_ms)

    def _longest_wait_ms(self, now_ms: int) -> int:
        if self._shutdown is not None:
            return _BUSY_TICK_MS
        if self._care.is_busy:
            return 0
        due = (record for record in self._children if record.state in {State.WAITING, State.PARKED})
        waits = (record.restart_at_ms - now_ms for record in due)
        return min(self._tick_ms, max(_BUSY_TICK_MS, min(waits, default=self._tick_ms)))

    def _turn(self, now_ms: int) -> None:
        self._care.turn(now_ms)
        if self._care.halt is not None and self._shutdown is None:
            self._log.error("node_halted", reason=self._care.halt.reason, exit_code=self._care.halt.exit_code)
            self._begin_shutdown(self._care.halt.exit_code, now_ms)
        if self._shutdown is not None:
            self._carry_out(self._shutdown, now_ms)
        else:
            self._rolling.turn(now_ms)
            if self._source_watch is not None and self._source_watch.has_changed(now_ms):
                self._log.info("source_changed")
                self._rolling.begin(now_ms)
        if now_ms - self._shown_at_ms >= _SHOW_EVERY_MS:
            self._shown_at_ms = now_ms
            self._show(now_ms)
        if self._complete_since is not None and now_ms - self._complete_since[1] >= _SHOWN_WITHIN_MS:
            self._announce()  # Redis does not answer; whoever asks it learns that much
        if os.getpid() == 1:
            self._collect_orphans()

    # Stopping

    def _begin_shutdown(self, exit_code: int, now_ms: int) -> None:
        self._care.is_closing = True
        self._import_check.close()
        self._shutdown = Shutdown(exit_code, self._drain_ms, now_ms)
        self._notifier.note_stopping()

    def _carry_out(self, shutdown: Shutdown, now_ms: int) -> None:
        for order in shutdown.orders(list(self._children), now_ms):
            record = self._children.get(order.name)
            if record is None:
                continue
            match order:
                case TellToDrain(_, grace_ms):
                    self._care.tell(record, Drain(grace_ms))
                case KillChild(_, reason):
                    self._care.kill(record, reason, Fault.SPARED)
                case _:
                    assert_never(order)

    def _exit_code(self) -> int:
        if self._shutdown is not None and self._shutdown.exit_code:
            return self._shutdown.exit_code
        return EXIT_FAILED if self._care.has_failures else 0

    # Signals

    def _hear_signals(self, inbox: SignalInbox, now_ms: int) -> None:
        for number in inbox.take():
            match number:
                case signal.SIGTERM | signal.SIGINT:
                    self._stop(number, now_ms)
                case signal.SIGHUP:
                    self._hang_up(now_ms)
                case signal.SIGUSR1:
                    self._dump(now_ms)
                case _:
                    pass

    def _stop(self, number: signal.Signals, now_ms: int) -> None:
        if self._shutdown is None:
            self._log.info(
                "node_draining", signal=number.name, drain_s=self._drain.seconds, why=self._drain.why
            )
            self._begin_shutdown(0, now_ms)
        else:
            self._shutdown.hurry(now_ms)
            self._log.warning("node_hurried", signal=number.name, urgency=self._shutdown.urgency.name.lower())

    def _hang_up(self, now_ms: int) -> None:
        if self._terminal is not None and not os.isatty(self._terminal):
            self._stop(signal.SIGHUP, now_ms)  # the terminal was closed: not a request to restart
        elif self._shutdown is None:
            self._log.info("workers_restarting")
            self._rolling.begin(now_ms)

    def _dump(self, now_ms: int) -> None:
        for child in self._snapshot(now_ms)["children"]:
            self._log.info("child_status", **child)
        with suppress(OSError, ValueError):  # no stderr to write to
            faulthandler.dump_traceback()
        for record in self._children:
            if record.child is not None:
                record.child.process.send(STACK_DUMP_SIGNAL)

    # Showing

    def _open_status_socket(self, closing: ExitStack) -> None:
        try:
            status = StatusSocket(self._directory)
        except OSError as error:  # a read-only directory: work is done all the same
            self._log.warning("status_socket_missing", reason=str(error))
            return
        closing.callback(status.close)
        self._selector.register(
            status, selectors.EVENT_READ, lambda now_ms: status.answer(lambda: self._snapshot(now_ms))
        )

    def _show(self, now_ms: int) -> None:
        # A node that goes on without one of its actors must not be ended for it.
        self._notifier.note(is_complete=self._children.is_settled)
        # Who writes last removes it: nobody else may write after that.
        self._writer = self._choose_writer() if self._shutdown is None else self._writer
        writer = self._writer
        if writer is None or writer.child is None or writer.child.control.has_unsent:
            return  # one snapshot in the pipe is enough: it shows the present or nothing
        self._snapshots += 1
        self._care.tell(writer, NodeSnapshot(self._node.name, self._snapshots, self._snapshot(now_ms)))

    def _choose_writer(self) -> ChildRecord | None:
        """The first live actor: the node is seen, and names any actor that keeps dying."""
        actors = [
            record
            for role in (Role.REAPER, Role.ACTOR, Role.DISPATCHER)
            for record in self._children.of_role(role)
        ]
        return next((record for record in actors if record.state is State.LIVE), None)

    def _answer_monitor(self, record: ChildRecord, number: int) -> None:
        if record.child is not None and not record.child.control.has_unsent:
            figures = [
                plain
                for each in self._children
                for plain in (*each.carried_figures.snapshot(), *each.figures)
            ]
            snapshot = self._snapshot(self._clock.monotonic_ms()) | {"figures": figures}
            self._care.tell(record, NodeSnapshot(self._node.name, number, snapshot))

    def _snapshot(self, now_ms: int) -> Snapshot:
        return node_snapshot(
            self._children,
            self._node,
            pid=os.getpid(),
            started_at_ms=self._started_at_ms,
            is_draining=self._shutdown is not None,
            problem=self._rolling.problem,
            is_ready=self._is_announced,
            drain=self._drain,
            now_ms=now_ms,
        )

    def _note_ready(self, record: ChildRecord) -> None:
        if self._on_ready is not None:
            self._on_ready(record)
        if self._children.is_complete and self._complete_since is None and not self._is_announced:
            now_ms = self._clock.monotonic_ms()
            self._complete_since = self._snapshots + 1, now_ms
            self._show(now_ms)
            if self._writer is None:  # a topology without actors
                self._announce()

    def _note_shown(self, number: int) -> None:
        if self._complete_since is not None and number >= self._complete_since[0]:
            self._announce()

    def _announce(self) -> None:
        """Say that the node is ready: not before `status` can see it, wherever it is typed."""
        self._complete_since, self._is_announced = None, True
        self._notifier.note(is_complete=True)
        self._log.info("node_ready", node=self._node.name, pid=os.getpid())

    def _collect_orphans(self) -> None:
        """As the first process of a container: collect what others left behind, but no child of ours."""
        ours = {record.child.process.pid for record in self._children if record.child is not None}
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in ours:
                    return  # its handle wakes the loop
                os.waitpid(ended.si_pid, 0)


class SignalInbox:
    """Signals as something to read, between its entry and its exit: the kernel writes them into a pipe."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def __enter__(self) -> Self:
        self._previous_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, _do_nothing) for number in _HEARD}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """For selectors."""
        return self._read

    def take(self) -> list[signal.Signals]:
        """The signals that have arrived, in order."""
        with suppress(BlockingIOError):
            return [signal.Signals(number) for number in os.read(self._read, 256) if number in _HEARD]
        return []


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass
