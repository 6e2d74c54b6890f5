"""Stopping what runs: whom to tell that a message was cancelled, and whether to kill its worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.lost_workers import CANCELLED
from mqworker.actors.dispatcher.worker_care import slot_of
from mqworker.actors.dispatcher.workers import Crew, Hand
from mqworker.actors.mail import CancelDelivery, KillWorker
from mqworker.actors.run_slot import RunSlots
from mqworker.model.record import is_record_of


class Stop(NamedTuple):
    """A wish of request_cancel.lua, as it comes on the channel of wake-ups."""

    message: bytes
    is_kill: bool


def stop_in(text: bytes) -> Stop | None:
    """The wish in a wake-up, if it is one."""
    how, _, message = text.partition(b" ")
    return Stop(message, how == b"kill") if how in {b"cancel", b"kill"} else None


def posts_to_stop(stop: Stop, crew: Crew, slots: RunSlots) -> Iterator[Post]:
    """What to send so that whoever runs the message stops."""
    for hand in crew:
        keys = [key for key, flight in hand.flights.items() if is_record_of(flight.record, stop.message)]
        if not keys:
            continue
        yield Post(hand.name, CancelDelivery(stop.message.decode()))
        if stop.is_kill and any(_runs(hand, key, slots) for key in keys):
            yield Post(SUPERVISOR, KillWorker(hand.name, CANCELLED))


def _runs(hand: Hand, key: tuple[str, int], slots: RunSlots) -> bool:
    """Whether a worker runs it; of several at once it is assumed."""
    running = slots.running(slot_of(hand.name))
    is_among_others = hand.flights[key].is_async or hand.threads > 1
    return is_among_others or (running is not None and running.is_of(key))
