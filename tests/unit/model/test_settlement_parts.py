"""Settlements as parts: what goes into a worker's report comes out in the thread of a foreign queue."""

from __future__ import annotations

import msgpack
import pytest

from mqworker.model.delivery import Delivery
from mqworker.model.instant import After, At
from mqworker.model.names import MessageId, TaskName
from mqworker.model.record import decode_record, encode_delivery
from mqworker.model.settlement import (
    UNKNOWN_TASK,
    Ack,
    Bury,
    Crash,
    Failure,
    Park,
    Release,
    RetryAt,
    Settlement,
)
from mqworker.model.settlement_parts import parts_of, settlement_of

HELD = Delivery(7, MessageId("m"), TaskName("t"), b"body", 1_700_000_000_000)
FAILURE = Failure("ValueError", "no", "trace")


@pytest.mark.parametrize(
    "settlement",
    [
        Ack(HELD),
        Ack(HELD, b"result"),
        RetryAt(HELD, After(5), FAILURE),
        RetryAt(HELD, At(1_700_000_000_000)),
        Park(HELD, After(30_000), FAILURE),
        Park(HELD, After(30_000), FAILURE, UNKNOWN_TASK),
        Release(HELD),
        Crash(HELD),
        Bury(HELD, "why", FAILURE, evidence={"cause": "SIGKILL"}),
        Bury(HELD, "why"),
    ],
)
def test_a_settlement_survives_the_mail(settlement: Settlement) -> None:
    parts = msgpack.unpackb(msgpack.packb(parts_of(settlement)))

    assert settlement_of(parts, {7: HELD}) == settlement


def test_what_is_held_no_more_is_not_settled() -> None:
    assert settlement_of(parts_of(Ack(HELD)), {}) is None


@pytest.mark.parametrize(
    "delivery",
    [
        HELD,
        Delivery(7, MessageId("a/b@0:1"), TaskName("t"), b" x ", 0, 0, 3, 2, 1, None, 1_800_000_000_000),
        Delivery(7, MessageId("m"), TaskName("t"), b"", 0, 9, 3, 2, 1, 35),
    ],
)
def test_a_delivery_of_any_model_travels_as_a_record(delivery: Delivery) -> None:
    assert decode_record(encode_delivery(delivery), 7) == delivery


def test_counts_that_outgrow_the_record_stay_at_its_largest() -> None:
    worn = Delivery(7, MessageId("m"), TaskName("t"), b"", 0, 0, 5_000, 5_000, 5_000)

    again = decode_record(encode_delivery(worn), 7)

    assert (again.deliveries, again.failures, again.crashes) == (999, 999, 35)
