"""The messages of gq in SQL: selecting, taking and ending them, each inside a transaction of the caller."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    case,
    delete,
    func,
    or_,
    select,
    update,
)

from mqworker.queues.gq.rules import (
    DELIVERIES_TOLD_APART,
    SHORTEST_LEASE_MS,
    GqClaim,
    GqHeld,
    GqMessage,
    GqRecord,
    GqResult,
    GqRetention,
    GqStatus,
    GqTerms,
    GqView,
    status_after_deadline,
    status_after_death,
    status_after_error,
    status_after_ok,
)

_MOST_AT_ONCE = 1_000
"""Rows that one statement of upkeep changes; the rest follows next time."""

_NOTHING_CHANGES = (GqStatus.CONSUMED, "")


class GqSqlMessages:
    """Statements on the table of messages."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def select_own(
        self, connection: Connection, view: GqView, count: int, terms: GqTerms, now_ms: int
    ) -> list[int]:
        """The oldest of the partition; at least once, also those that their consumer lost."""
        columns = self._table.c
        mine = and_(self._is_deliverable(terms, now_ms), columns.id % view.count == view.index)
        ids = self._oldest(connection, mine, count)
        if not terms.is_at_most_once:
            ids = sorted(ids + self._oldest(connection, self._is_overdue(now_ms), count))[:count]
        return ids

    def select_waiting(self, connection: Connection, count: int, terms: GqTerms, now_ms: int) -> list[int]:
        """The oldest of all partitions that waited long enough to be taken by anybody."""
        waited = self._table.c.queued_at_ms <= now_ms - (terms.steal_after_ms or 0)
        return self._oldest(connection, and_(self._is_deliverable(terms, now_ms), waited), count)

    def take(
        self, connection: Connection, claim: GqClaim, ids: Sequence[int], terms: GqTerms, now_ms: int
    ) -> list[GqMessage]:
        """Claim those of the ids that are still free for the consumer; returns them."""
        if not ids:
            return []
        columns = self._table.c
        claimable = self._is_deliverable(terms, now_ms)
        if not terms.is_at_most_once:
            claimable = or_(claimable, self._is_overdue(now_ms))
        # Locked in the order of ids, so that two with the same ids never wait for one another.
        still_there = self._oldest(connection, and_(columns.id.in_(ids), claimable), len(ids))
        self._fail_without_tries(connection, still_there, terms, now_ms)
        connection.execute(
            update(self._table)
            .where(columns.id.in_(still_there), claimable)
            .values(
                status=GqStatus.CONSUMED,
                consumer=claim.consumer,
                claim=claim.number,
                attempts=columns.attempts + 1,
                lease_ends_at_ms=self._lease_end(now_ms),
            )
        )
        return self.taken_by(connection, claim)

    def taken_by(self, connection: Connection, claim: GqClaim) -> list[GqMessage]:
        """What a claim took and still holds."""
        columns = self._table.c
        held = select(self._table).where(columns.status == GqStatus.CONSUMED, *self._is_of(claim))
        return [_message(row, claim) for row in connection.execute(held.order_by(columns.id))]

    def adopt(
        self,
        connection: Connection,
        claim: GqClaim,
        family: str,
        held: Sequence[GqHeld],
        younger: Sequence[str],
    ) -> list[int]:
        """Take over what consumers of the same family of names hold; the ids that it has now.

        Only from older ones, and its own only from an older claim: this call may come late, after those that
        followed it.
        """
        columns = self._table.c
        ids_by_delivery: dict[int, list[int]] = defaultdict(list)
        for each in held:
            ids_by_delivery[each.delivery].append(each.id)
        adopted: list[int] = []
        for delivery, ids in ids_by_delivery.items():
            this = and_(
                columns.id.in_(ids), columns.attempts % DELIVERIES_TOLD_APART == delivery, self._is_open()
            )
            of_family = and_(
                columns.consumer.startswith(family, autoescape=True),
                columns.consumer.not_in(younger),
                or_(columns.consumer != claim.consumer, columns.claim < claim.number),
            )
            connection.execute(
                update(self._table).where(this, of_family).values(consumer=claim.consumer, claim=claim.number)
            )
            ours = select(columns.id).where(this, *self._is_of(claim)).order_by(columns.id)
            adopted += connection.execute(ours).scalars()
        return adopted

    def settle(
        self, connection: Connection, results: Sequence[GqResult], terms: GqTerms, now_ms: int
    ) -> list[int]:
        """Write results; the ids of those that were lost."""
        results_by_claim: dict[GqClaim, dict[int, GqResult]] = defaultdict(dict)
        for result in results:
            results_by_claim[result.message.claim][result.message.id] = result
        lost: list[int] = []
        for claim, by_id in results_by_claim.items():
            done = [id_ for id_, result in by_id.items() if result.is_ok]
            erred = [id_ for id_, result in by_id.items() if not result.is_ok]
            lost += self._settle_done(connection, claim, done, now_ms)
            lost += self._settle_erred(connection, claim, erred, terms, now_ms)
        return lost

    def fail_expired(self, connection: Connection, terms: GqTerms, now_ms: int) -> None:
        """At most once: whatever passed its deadline, queued or consumed, failed."""
        columns = self._table.c
        for status in (GqStatus.QUEUED, GqStatus.CONSUMED):
            expired = and_(columns.status == status, columns.deadline_at_ms <= now_ms)
            ids = self._oldest(connection, expired, _MOST_AT_ONCE)
            self._change(connection, ids, status_after_deadline(status, 0, terms), now_ms)

    def reclaim_from(
        self, connection: Connection, consumers: Sequence[str], terms: GqTerms, now_ms: int
    ) -> None:
        """Return what deleted consumers held."""
        columns = self._table.c
        held = and_(columns.status == GqStatus.CONSUMED, columns.consumer.in_(consumers))
        rows = connection.execute(_locked(select(columns.id, columns.attempts).where(held))).all()
        ids_by_change: dict[tuple[GqStatus, str], list[int]] = defaultdict(list)
        for id_, attempts in rows:
            ids_by_change[status_after_death(attempts, terms)].append(id_)
        for change, ids in ids_by_change.items():
            self._change(connection, ids, change, now_ms)
        # A late result of the dead one is lost, whatever it says.
        reclaimed = [id_ for id_, _ in rows]
        connection.execute(update(self._table).where(columns.id.in_(reclaimed)).values(claim=None))

    def purge(self, connection: Connection, retention: GqRetention, now_ms: int) -> None:
        """Delete ended messages beyond what is kept."""
        columns = self._table.c
        ended = columns.status.in_((GqStatus.PROCESSED, GqStatus.FAILED))
        connection.execute(delete(self._table).where(ended, columns.done_at_ms < now_ms - retention.ms))
        kept = connection.execute(select(func.count()).select_from(self._table).where(ended)).scalar_one()
        if kept <= retention.count:
            return
        oldest = select(columns.id).where(ended).order_by(columns.done_at_ms, columns.id)
        ids = connection.execute(oldest.limit(min(kept - retention.count, _MOST_AT_ONCE))).scalars().all()
        connection.execute(delete(self._table).where(columns.id.in_(ids)))

    def find(self, connection: Connection, message: int) -> GqRecord | None:
        """A message as it is stored."""
        row = connection.execute(select(self._table).where(self._table.c.id == message)).first()
        if row is None:
            return None
        return GqRecord(
            row.id,
            bytes(row.payload),
            GqStatus(row.status),
            row.created_at_ms,
            row.deadline_at_ms,
            row.attempts,
            row.consumer,
            row.reason,
        )

    def counts(self, connection: Connection) -> dict[GqStatus, int]:
        """How many messages are stored in each status."""
        status = self._table.c.status
        rows = connection.execute(select(status, func.count()).group_by(status)).all()
        found = {GqStatus(name): int(number) for name, number in rows}
        return {each: found.get(each, 0) for each in GqStatus}

    def _oldest(self, connection: Connection, condition: ColumnElement[bool], count: int) -> list[int]:
        wanted = select(self._table.c.id).where(condition).order_by(self._table.c.id).limit(count)
        return list(connection.execute(_locked(wanted)).scalars())

    def _is_deliverable(self, terms: GqTerms, now_ms: int) -> ColumnElement[bool]:
        columns = self._table.c
        is_queued = columns.status == GqStatus.QUEUED
        if not terms.is_at_most_once:
            return is_queued
        return and_(is_queued, or_(columns.deadline_at_ms.is_(None), columns.deadline_at_ms > now_ms))

    def _is_overdue(self, now_ms: int) -> ColumnElement[bool]:
        columns = self._table.c
        return and_(columns.status == GqStatus.CONSUMED, columns.lease_ends_at_ms <= now_ms)

    def _is_open(self) -> ColumnElement[bool]:
        """Failed at its deadline while it ran: nobody else had it, so a success still counts."""
        columns = self._table.c
        failed_meanwhile = and_(columns.status == GqStatus.FAILED, columns.reason == "deadline")
        return or_(columns.status == GqStatus.CONSUMED, failed_meanwhile)

    def _is_of(self, claim: GqClaim) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        return self._table.c.consumer == claim.consumer, self._table.c.claim == claim.number

    def _lease_end(self, now_ms: int) -> ColumnElement[Any]:
        """As `lease_ends_at_ms` decides; NULL where there is no deadline."""
        deadline, created = self._table.c.deadline_at_ms, self._table.c.created_at_ms
        length = case((deadline - created > SHORTEST_LEASE_MS, deadline - created), else_=SHORTEST_LEASE_MS)
        return case((deadline > now_ms, deadline), (deadline <= now_ms, now_ms + length), else_=None)

    def _fail_without_tries(
        self, connection: Connection, ids: Sequence[int], terms: GqTerms, now_ms: int
    ) -> None:
        if terms.max_retries is None:
            return
        columns = self._table.c
        is_spent = and_(columns.status == GqStatus.CONSUMED, columns.attempts > terms.max_retries)
        spent = self._oldest(connection, and_(columns.id.in_(ids), is_spent), len(ids))
        self._change(connection, spent, (GqStatus.FAILED, "retries"), now_ms)

    def _settle_done(
        self, connection: Connection, claim: GqClaim, ids: Sequence[int], now_ms: int
    ) -> list[int]:
        if not ids:
            return []
        columns = self._table.c
        changed = connection.execute(
            update(self._table)
            .where(columns.id.in_(ids), *self._is_of(claim), self._is_open())
            .values(status=status_after_ok(), reason="", done_at_ms=now_ms, lease_ends_at_ms=None)
        )
        if changed.rowcount == len(ids):
            return []
        # Those written before, by a call whose answer was lost, are not lost.
        is_done = and_(columns.id.in_(ids), columns.status == status_after_ok(), *self._is_of(claim))
        done = set(connection.execute(select(columns.id).where(is_done)).scalars())
        return [id_ for id_ in ids if id_ not in done]

    def _settle_erred(
        self, connection: Connection, claim: GqClaim, ids: Sequence[int], terms: GqTerms, now_ms: int
    ) -> list[int]:
        if not ids:
            return []
        columns = self._table.c
        mine = select(self._table).where(columns.id.in_(ids), *self._is_of(claim)).order_by(columns.id)
        rows = connection.execute(mine.with_for_update()).all()
        ids_by_change: dict[tuple[GqStatus, str], list[int]] = defaultdict(list)
        for row in rows:
            if row.status == GqStatus.CONSUMED:  # the others: failed at the deadline, or written before
                change = status_after_error(row.deadline_at_ms, row.attempts, terms, now_ms)
                ids_by_change[change].append(row.id)
        for change, changed in ids_by_change.items():
            self._change(connection, changed, change, now_ms)
        found = {row.id for row in rows}
        return [id_ for id_ in ids if id_ not in found]

    def _change(
        self, connection: Connection, ids: Sequence[int], change: tuple[GqStatus, str], now_ms: int
    ) -> None:
        if not ids or change == _NOTHING_CHANGES:
            return
        status, reason = change
        when = {"queued_at_ms": now_ms} if status is GqStatus.QUEUED else {"done_at_ms": now_ms}
        connection.execute(
            update(self._table)
            .where(self._table.c.id.in_(ids))
            .values(status=status, reason=reason, lease_ends_at_ms=None, **when)
        )


def _locked(wanted: Select[Any]) -> Select[Any]:
    """With the rows locked, where the database can, passing over those that somebody else has locked."""
    return wanted.with_for_update(skip_locked=True)


# Any: the columns of a row are known to the table only.
def _message(row: Row[Any], claim: GqClaim) -> GqMessage:
    return GqMessage(row.id, bytes(row.payload), row.attempts, row.created_at_ms, row.deadline_at_ms, claim)
