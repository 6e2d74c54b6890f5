"""The outbox: what members of workflows left behind when they ended, and what follows from it.

A script that ends a member notes it in the outbox of its queue, in the same breath. Here it is carried out:
count it in its workflow (advance_workflow.lua), enqueue the calls that follow, each under an id of its own,
then clear the entry. Whoever is killed in between has it done again, and nothing happens twice; so any
number of brokers may do this at once, without a lock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from mqworker.errors import InvalidArgument, InvalidMessage, QueueFull, StoreFull, StoreRefused
from mqworker.log import Logger
from mqworker.model.assembled_call import as_input
from mqworker.model.call_template import CallTemplate, template_of
from mqworker.model.envelope import array_header
from mqworker.model.guard import member_guard
from mqworker.model.message import Message
from mqworker.model.names import QueueName, parse_message_id
from mqworker.model.packed_limits import check_packed
from mqworker.model.value_codec import pack
from mqworker.queues.work.keys import workflow_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import WorkQueueSteps
from mqworker.store.exchange import UNREADABLE
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.store.store import Store
from mqworker.tasks.job_steps import JobSteps
from mqworker.tasks.outcome import NotKept, Succeeded
from mqworker.tasks.workflows.outcome import failed_outcome, member_failure, member_id, outcome_of
from mqworker.tasks.workflows.plan import LONGEST_RUN_MS

script = scripts_of(__package__)

PAGE = 500
"""Entries looked at in one go; a group of thousands is counted in a few steps."""

Entries = dict[str, list[tuple[str, bytes]]]
"""By workflow: (node, outcome)."""


class OutboxDrain:
    """Carries on the workflows whose members ended in a queue. One for all queues of a store."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        queue_of: Callable[[QueueName], WorkQueue],
        *,
        max_message_bytes: int,
        log: Logger,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._queue_of = queue_of
        self._max_bytes = max_message_bytes
        self._log = log

    def drain(self, queue: WorkQueue) -> int:
        """Carry out everything in the outbox of this queue; how many ends were counted."""
        cleared, cursor = 0, b"0"
        while True:
            cursor, entries = self._page(queue, cursor)
            done = [
                (member_id(workflow, node), outcome)
                for workflow, ends in entries.items()
                if self._is_carried_on(queue, workflow, ends)
                for node, outcome in ends
            ]
            for start in range(0, len(done), PAGE):
                cleared += queue.store.run(queue.calls.clear_outbox(done[start : start + PAGE]))
            if cursor == b"0":
                return cleared

    def _page(self, queue: WorkQueue, cursor: bytes) -> tuple[bytes, Entries]:
        keys = queue.calls.keys
        # Any: HSCAN answers the next cursor, and fields and values in turn.
        reply: Any = queue.store.send([("HSCAN", keys.named("outbox"), cursor, "COUNT", PAGE)], keys.meta)[0]
        entries: Entries = {}
        for member, outcome in zip(reply[1][::2], reply[1][1::2], strict=True):
            workflow, _, node = (parse_message_id(member) or "").partition("~")
            if not node:
                self._skip(queue, member, "no member of a workflow")
            else:
                entries.setdefault(workflow, []).append((node, outcome))
        return reply[0], entries

    def _skip(self, queue: WorkQueue, member: bytes, why: object) -> None:
        outbox = queue.calls.keys.named("outbox")
        self._store.quarantine.note("workflow member", outbox, why, member, remove_by="HDEL")

    def _is_carried_on(self, queue: WorkQueue, workflow: str, ends: Sequence[tuple[str, bytes]]) -> bool:
        """Count the ends and enqueue what follows; False when that is to be tried again.

        A queue may be full; or what is stored of the workflow cannot be read, and then only it waits.
        """
        try:
            self._carry_on(workflow, ends)
        except (QueueFull, StoreFull) as error:
            self._log.warning("workflow_waits", workflow=workflow, reason=str(error))
            return False
        except InvalidMessage as error:
            self._log.error("workflow_broken", workflow=workflow, reason=str(error))
        except (StoreRefused, *UNREADABLE) as error:
            for node, _ in ends:
                self._skip(queue, member_id(workflow, node).encode(), error)
            return False
        return True

    def _carry_on(self, workflow: str, ends: Sequence[tuple[str, bytes]]) -> None:
        counted, was_enqueued = list(ends), False
        is_cancelled, calls = self._advance(workflow, counted)
        while calls and not is_cancelled:
            refused = self._enqueue(workflow, calls)
            counted, was_enqueued = counted + refused, True
            # Who cancelled it a moment ago may have looked before they were in line: then they go here.
            is_cancelled = self._read(workflow, "state")[0] == b"cancelled"
            if refused and not is_cancelled:
                is_cancelled, calls = self._advance(workflow, refused)
            else:
                calls = []
        if is_cancelled and was_enqueued:
            _, calls = self._advance(workflow, counted)
        if is_cancelled:
            self._take_out(workflow, calls)

    def _take_out(self, workflow: str, nodes: Sequence[int]) -> None:
        for node, stored in self._fields(workflow, "t", nodes).items():
            work = self._queue_of(_StoredCall.read(stored).template.queue)
            work.store.follow(
                JobSteps(WorkQueueSteps(work.calls, self._namespace)).cancel(member_id(workflow, node))
            )

    def _advance(self, workflow: str, ends: Sequence[tuple[str, bytes]]) -> tuple[bool, list[int]]:
        arguments = [part for end in ends for part in end]
        key = workflow_key(self._namespace, workflow)
        return self._store.run(Call(script("advance_workflow"), (key,), (LONGEST_RUN_MS, *arguments), _step))

    def _enqueue(self, workflow: str, nodes: Sequence[int]) -> list[tuple[str, bytes]]:
        """Make calls; those whose input is too large come back, with that as their outcome."""
        messages: dict[QueueName, list[Message]] = {}
        refused: list[tuple[str, bytes]] = []
        output_by_node: dict[tuple[int, bool] | None, bytes] = {}
        problem_by_node: dict[tuple[int, bool] | None, str] = {}
        for node, stored in self._fields(workflow, "t", nodes).items():
            call = _StoredCall.read(stored)
            source = None if call.input_from is None else (call.input_from, call.takes == "failure")
            if source is not None and source not in output_by_node:
                output_by_node[source] = self._input(workflow, *source)
                problem_by_node[source] = self._problem_with(output_by_node[source])
            problem = problem_by_node.get(source, "")
            try:
                message = None if problem else call.message(workflow, node, output_by_node.get(source))
            except InvalidArgument as error:  # not the input alone, but with the other arguments
                message, problem = None, str(error)
            if message is None:
                refused.append((str(node), self._refusal(workflow, node, call, problem)))
            else:
                messages.setdefault(call.template.queue, []).append(message)
        for queue, some in messages.items():
            self._queue_of(queue).enqueue(*some)
        return refused

    def _problem_with(self, output: bytes) -> str:
        if len(output) > self._max_bytes:
            limit = f"{self._max_bytes:,} (the setting max_message_bytes)"
            return f"{len(output):,} bytes; accepted are up to {limit}"
        try:
            check_packed(output)
        except InvalidMessage as error:
            return str(error)
        return ""

    def _refusal(self, workflow: str, node: int, call: _StoredCall, problem: str) -> bytes:
        task = call.template.message.task
        self._log.warning("workflow_input_refused", workflow=workflow, node=node, task=task, reason=problem)
        return failed_outcome("input_too_large", "InvalidArgument", f"the input of {task}: {problem}")

    def _input(self, workflow: str, node: int, is_failure: bool) -> bytes:  # noqa: FBT001 - a key, unpacked
        if not is_failure:
            return self._output(workflow, node)
        cause = self._read(workflow, f"k{node}")[0] or b""
        failed = int(cause) if cause.isdigit() else node
        outcome = outcome_of(workflow, failed, self._fields(workflow, "r", [failed]).get(failed))
        # Made good meanwhile: the branch runs all the same, once, and its reason is no longer known.
        known = NotKept() if isinstance(outcome, Succeeded) else outcome
        return pack(member_failure(workflow, failed, self._task(workflow, failed), known))

    def _output(self, workflow: str, node: int) -> bytes:
        """What a node hands on, packed: the result of a call, or the list that a join collected."""
        inputs = self._read(workflow, f"i{node}")[0]
        if inputs is None:
            return self._packed(workflow, [node])[0]
        members = [int(each) for each in inputs.split()]
        return array_header(len(members)) + b"".join(self._packed(workflow, members))

    def _packed(self, workflow: str, nodes: Sequence[int]) -> list[bytes]:
        outcomes = self._fields(workflow, "r", nodes)
        return [
            self._packed_outcome(workflow, node, outcomes[node])
            if node in outcomes
            else self._output(workflow, node)  # a join in a join
            for node in nodes
        ]

    def _packed_outcome(self, workflow: str, node: int, kept: bytes) -> bytes:
        outcome = outcome_of(workflow, node, kept)
        if isinstance(outcome, Succeeded):
            return as_input(outcome.result)
        return pack(member_failure(workflow, node, self._task(workflow, node), outcome))

    def _task(self, workflow: str, node: int) -> str:
        stored = self._fields(workflow, "t", [node]).get(node)
        return "" if stored is None else _StoredCall.read(stored).template.message.task

    def _fields(self, workflow: str, kind: str, nodes: Sequence[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for start in range(0, len(nodes), PAGE):
            some = nodes[start : start + PAGE]
            replies = self._read(workflow, *(f"{kind}{node}" for node in some))
            found |= {node: reply for node, reply in zip(some, replies, strict=True) if reply is not None}
        return found

    def _read(self, workflow: str, *fields: str) -> list[bytes | None]:
        key = workflow_key(self._namespace, workflow)
        replies = self._store.send([("HMGET", key, *fields)], key)[0]
        return cast("list[bytes | None]", replies)  # what HMGET answers


@dataclass(frozen=True, slots=True)
class _StoredCall:
    """A call of a workflow as it is kept: the template, and the node whose outcome is its first argument."""

    template: CallTemplate
    input_from: int | None
    takes: str = "outcome"
    places: int = 1
    """How many arguments its input stands for."""

    @classmethod
    def read(cls, text: bytes) -> Self:
        try:
            fields = json.loads(text)
            takes, places = fields.get("takes", "outcome"), int(fields.get("places", 1))
            return cls(template_of(fields), fields["input_from"], takes, places)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidMessage(f"a call of the workflow cannot be read: {error!r}") from error

    def message(self, workflow: str, node: int, first_argument: bytes | None) -> Message:
        message = member_id(workflow, node)
        return self.template.called(message, member_guard(message), first_argument, places=self.places)


def _step(reply: RawReply) -> tuple[bool, list[int]]:
    is_cancelled, *nodes = reply
    return bool(is_cancelled), [int(node) for node in nodes]
