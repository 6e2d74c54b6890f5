"""One call of every script that knows its calls by number, of every queue model, ready to be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from mqworker.model.delivery import Delivery
from mqworker.model.guard import GuardMode, unique_guard
from mqworker.model.instant import After
from mqworker.model.names import MessageId, QueueName, TaskName
from mqworker.model.settlement import Ack, Bury
from mqworker.queues.celery.calls import CeleryCalls, Ended
from mqworker.queues.celery.keys import CeleryKeys
from mqworker.queues.celery.outgoing import message_text, protocol_headers
from mqworker.queues.gq.calls import FROM_THE_START, GqCalls
from mqworker.queues.gq.database import GqOutgoing
from mqworker.queues.gq.rules import GqClaim, GqLiveness, GqResult, GqTerms
from mqworker.queues.rsmq.calls import OutgoingMessage, RsmqCalls, RsmqOptions
from mqworker.queues.rsmq.lease_calls import RsmqLeaseCalls
from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.calls import TopicCalls
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.command import Command
from mqworker.store.script import Call
from mqworker.store.store import Store
from tests.support.messages import AN_HOUR_MS, a_message, some_messages

LANE = "lane"

Copies: TypeAlias = Callable[[int], tuple[Call[Any], Command]]
"""The call as a lane sends it under a number; and the command, which is the same for every copy of it."""

Prepare: TypeAlias = Callable[[Store], Copies]
"""Fills the queue and prepares the call."""


def _in_lane(prepare: Callable[[Store], Call[Any]]) -> Prepare:
    def prepared(store: Store) -> Copies:
        call = prepare(store)
        assert call.is_numbered, f"{call.script.name} is not sent with a number"
        return lambda number: (call, call.command_with_source((LANE, number)))

    return prepared


# Work queues


def work(store: Store) -> WorkQueue:
    """The work queue of these calls."""
    return WorkQueue("q", store)


def _enqueue(store: Store) -> Call[Any]:
    return work(store).calls.enqueue(some_messages(3))


def _enqueue_rich(store: Store) -> Call[Any]:
    guard = unique_guard("k", GuardMode.UNTIL_SETTLED)
    later = After(AN_HOUR_MS)
    return work(store).calls.enqueue([a_message(priority=3), a_message(due=later), a_message(guard=guard)])


def _claim(store: Store) -> Call[Any]:
    work(store).enqueue(*some_messages(6))
    return work(store).calls.claim(2, None, AN_HOUR_MS)


def _settle(store: Store) -> Call[Any]:
    work(store).enqueue(*some_messages(3))
    done, lost, buried = work(store).claim(3)
    work(store).settle(Ack(lost))
    return work(store).calls.settle([Ack(done, b"result"), Ack(lost), Bury(buried, "why")], None)


def _extend(store: Store) -> Call[Any]:
    work(store).enqueue(a_message())
    (delivery,) = work(store).claim()
    return work(store).calls.extend([delivery.fence], AN_HOUR_MS)


def _cancel(store: Store) -> Call[Any]:
    message = a_message()
    work(store).enqueue(message)
    return work(store).calls.cancel(message.id, 0, 100)


def _request_cancel(store: Store) -> Call[Any]:
    work(store).enqueue(a_message())
    return work(store).calls.request_cancel(work(store).claim()[0].id)


def _revive(store: Store) -> Call[Any]:
    work(store).enqueue(a_message())
    (delivery,) = work(store).claim()
    work(store).settle(Bury(delivery, "why"))
    return work(store).calls.revive([delivery.id])


def _purge(store: Store) -> Call[Any]:
    work(store).enqueue(*some_messages(3))
    return work(store).calls.purge("waiting", 100)


def _set_limit(store: Store) -> Call[Any]:
    return work(store).calls.set_limit("t", 4)


def _close(store: Store) -> Call[Any]:
    return work(store).calls.close(["t"], 1_000)


def _spend(store: Store) -> Call[Any]:
    queue = work(store)
    queue.enqueue(a_message(limits="t=10/1000/10*&1"))
    queue.admit(1)
    (delivery,) = queue.claim(1, consumer="north")
    return queue.calls.spend(delivery.fence, 5, [1], "north")  # type: ignore[arg-type]


def _configure(store: Store) -> Call[Any]:
    return work(store).calls.configure(paused="1")


def _push(store: Store) -> Call[Any]:
    return work(store).calls.push([b"a", b"b"])


def _pop(store: Store) -> Call[Any]:
    work(store).push(b"a", b"b", b"c", b"d")
    return work(store).calls.pop(2)


def _ack(store: Store) -> Call[Any]:
    pushed = work(store).push(b"a", b"b")
    work(store).pop(2)
    return work(store).calls.ack([pushed[0], "unknown"])


def _recover(store: Store) -> Call[Any]:
    work(store).push(b"a", b"b")
    work(store).pop(2)
    return work(store).calls.recover(2, 0)


def _put_back(store: Store) -> Call[Any]:
    pushed = work(store).push(b"a", b"b")
    work(store).pop(2)
    return work(store).calls.put_back(pushed)


# RSMQ

RSMQ = RsmqCalls(RsmqOptions())
_LEASES = RsmqLeaseCalls("q", RSMQ.keys("q"))


def _rsmq_filled(store: Store) -> list[str]:
    store.run(RSMQ.create_queue("q", 30, 0, 65_536))
    return store.run(RSMQ.send("q", [OutgoingMessage(b"%d" % number) for number in range(6)]))


def _rsmq(build: Callable[[list[str]], Call[Any]]) -> Prepare:
    return _in_lane(lambda store: build(_rsmq_filled(store)))


def _rsmq_leased(build: Callable[[int], Call[Any]]) -> Prepare:
    def prepare(store: Store) -> Call[Any]:
        _rsmq_filled(store)
        return build(store.run(_LEASES.claim(1, AN_HOUR_MS))[0].fence)

    return _in_lane(prepare)


def _rsmq_settle(store: Store) -> Call[Any]:
    _rsmq_filled(store)
    done, buried = store.run(_LEASES.claim(2, AN_HOUR_MS))
    return _LEASES.settle([Ack(done), Bury(buried, "why")])  # type: ignore[arg-type] # never unreadable


def _rsmq_revive(store: Store) -> Call[Any]:
    first = _rsmq_filled(store)[0]
    (buried,) = store.run(_LEASES.claim(1, AN_HOUR_MS))
    store.run(_LEASES.settle([Bury(buried, "why")]))
    return _LEASES.revive([first])


# Topics

TOPICS = TopicCalls(TopicOptions(grace_ms=0))


def _observe(store: Store) -> Call[Any]:
    store.run(TOPICS.subscribe("key", "consumer", "peer"))
    store.run(TOPICS.publish("key", [b"1", b"2"]))
    store.run(TOPICS.dispatch(b"key", 10))
    return TOPICS.observe("consumer", "peer")


def _unsubscribe(store: Store) -> Call[Any]:
    store.run(TOPICS.subscribe("key", "consumer", "peer"))
    return TOPICS.unsubscribe("key", "consumer")


# gq, whose pushes and claims bring their own numbers

GQ = GqCalls("mqw", QueueName("q"))
_ALIVE, _TERMS = GqLiveness(interval_ms=1_000_000), GqTerms()


def _gq_push(_store: Store) -> Copies:
    def copy(number: int) -> tuple[Call[Any], Command]:
        call = GQ.push((LANE, number), [GqOutgoing(b"a"), GqOutgoing(b"b")])
        return call, call.command_with_source(None)

    return copy


def _gq_filled(store: Store) -> None:
    store.run(GQ.push(("other", 1), [GqOutgoing(b"%d" % number) for number in range(8)]))
    store.run(GQ.register("c"))


def _gq_pop(store: Store) -> Copies:
    _gq_filled(store)

    def copy(number: int) -> tuple[Call[Any], Command]:
        call = GQ.pop(GqClaim("c", number), 2, _ALIVE, _TERMS, FROM_THE_START)
        return call, call.command_with_source(None)

    return copy


def _gq_claim(store: Store) -> Copies:
    _gq_filled(store)

    def copy(number: int) -> tuple[Call[Any], Command]:
        call = GQ.claim(GqClaim("c", number), [1, 2, 3], _ALIVE, _TERMS)
        return call, call.command_with_source(None)

    return copy


def _gq_settle(store: Store) -> Call[Any]:
    _gq_filled(store)
    _, messages = store.run(GQ.pop(GqClaim("c", 1), 2, _ALIVE, _TERMS, FROM_THE_START))
    return GQ.settle([GqResult(messages[0], is_ok=True), GqResult(messages[1], is_ok=False)], _TERMS)


# Celery's lists

_CELERY = CeleryCalls(CeleryKeys("", "celery"), result_ms=1_000, result_db=None)


def _celery_text(task_id: str) -> str:
    following = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return message_text(protocol_headers(task="t", task_id=task_id), [[], {}, following], queue="celery")


def _celery(build: Callable[[], Call[Any]]) -> Prepare:
    """Of eight messages two are claimed, under the fences 1 and 2."""

    def prepare(store: Store) -> Call[Any]:
        store.run(_CELERY.send([_celery_text(f"m{number}") for number in range(8)]))
        store.run(_CELERY.claim(2, AN_HOUR_MS, []))
        return build()

    return _in_lane(prepare)


def _celery_settle() -> Call[Any]:
    return _CELERY.settle([Ended(Ack(Delivery(1, MessageId("m0"), TaskName("t"), b"", 0)))])


PREPARE_BY_SCRIPT: Mapping[str, Prepare] = {
    "celery_send": _celery(lambda: _CELERY.send([_celery_text("sent")])),
    "celery_claim": _celery(lambda: _CELERY.claim(2, AN_HOUR_MS, [])),
    "celery_settle": _celery(_celery_settle),
    "celery_extend": _celery(lambda: _CELERY.extend([1], AN_HOUR_MS)),
    "celery_revive": _celery(lambda: _CELERY.revive(["dead"])),
    "enqueue": _in_lane(_enqueue),
    "enqueue_rich": _in_lane(_enqueue_rich),
    "claim": _in_lane(_claim),
    "settle": _in_lane(_settle),
    "extend": _in_lane(_extend),
    "cancel": _in_lane(_cancel),
    "request_cancel": _in_lane(_request_cancel),
    "revive": _in_lane(_revive),
    "purge": _in_lane(_purge),
    "configure": _in_lane(_configure),
    "set_limit": _in_lane(_set_limit),
    "close": _in_lane(_close),
    "spend": _in_lane(_spend),
    "push": _in_lane(_push),
    "pop": _in_lane(_pop),
    "ack": _in_lane(_ack),
    "recover": _in_lane(_recover),
    "put_back": _in_lane(_put_back),
    "rsmq_create_queue": _in_lane(lambda _store: RSMQ.create_queue("q", 30, 0, 65_536)),
    "rsmq_delete_queue": _rsmq(lambda _ids: RSMQ.delete_queue("q")),
    "rsmq_set_attributes": _rsmq(lambda _ids: RSMQ.set_attributes("q", {"vt": 7})),
    "rsmq_send": _rsmq(lambda _ids: RSMQ.send("q", [OutgoingMessage(b"new")])),
    "rsmq_receive": _rsmq(lambda _ids: RSMQ.receive("q", 2, None)),
    "rsmq_pop": _rsmq(lambda _ids: RSMQ.pop("q")),
    "rsmq_delete": _rsmq(lambda ids: RSMQ.delete("q", ids[:1])),
    "rsmq_change_visibility": _rsmq(lambda ids: RSMQ.change_visibility("q", ids[0], 9_000)),
    "rsmq_claim": _rsmq(lambda _ids: _LEASES.claim(2, AN_HOUR_MS)),
    "rsmq_extend": _rsmq_leased(lambda fence: _LEASES.extend([fence], AN_HOUR_MS)),
    "rsmq_settle": _in_lane(_rsmq_settle),
    "rsmq_revive": _in_lane(_rsmq_revive),
    "topic_publish": _in_lane(lambda _store: TOPICS.publish("key", [b"1"])),
    "topic_observe": _in_lane(_observe),
    "topic_subscribe": _in_lane(lambda _store: TOPICS.subscribe("key", "consumer", "peer")),
    "topic_unsubscribe": _in_lane(_unsubscribe),
    "gq_push": _gq_push,
    "gq_settle": _in_lane(_gq_settle),
    "gq_pop": _gq_pop,
    "gq_claim": _gq_claim,
}
"""Every script that judges a call by its number; a test compares this with the scripts there are."""

ENDS_THE_QUEUE = frozenset({"rsmq_delete_queue"})
"""After these there is no queue, and a call that finds none is not remembered."""
