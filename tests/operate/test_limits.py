"""Limits and fairness as instruments: they say what admit.lua does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker import App, Fair, Rate
from mqworker.operate.limits import MOST_LIMITS, bucket_view, read_limits
from mqworker.operate.system import System
from mqworker.tasks.published_tasks import publish_tasks
from tests.support.real_server import RealServer


@pytest.fixture
def app(system: System) -> Iterator[App]:
    made = App("shop", settings=system.settings)
    yield made
    made.close()


def test_a_bucket_tells_its_fill_who_waits_and_the_next_token(app: App, system: System) -> None:
    mail = app.task(name="shop.mail", rate=[Rate("2/m"), Rate("1/m", key="{tenant}")])(lambda tenant: tenant)
    for _ in range(5):
        mail.enqueue("acme")
    app.work_queue().store.run(app.work_queue().calls.admit(100))

    (queue,) = read_limits(system).queues

    own, keyed = sorted(queue.buckets, key=lambda bucket: bucket.name)
    assert (queue.queue, queue.combinations, queue.waiting) == ("default", 1, 4)
    assert (own.name, own.count, own.period_ms, own.waiting) == ("shop.mail", 2, 60_000, 4)
    assert (keyed.name, keyed.waiting) == ("shop.mail:acme", 4)
    assert keyed.tokens < 1
    assert 50_000 < keyed.next_token_ms <= 60_000
    assert 0.9 < own.tokens < 1.1


def test_a_published_limit_is_shown_while_nobody_waits(app: App, system: System) -> None:
    app.task(name="shop.mail", rate="100/s")(lambda: None)
    publish_tasks(app)

    (queue,) = read_limits(system).queues

    (bucket,) = queue.buckets
    assert (bucket.fill, bucket.waiting, bucket.next_token_ms) == (1.0, 0, 0)


def test_tenants_are_shown_with_the_share_they_asked_for_and_got(
    app: App, system: System, server: RealServer
) -> None:
    report = app.task(name="shop.report", queue="fair", fair_by=Fair("{tenant}", {"gold": 3}))(
        lambda tenant: tenant
    )
    for _ in range(400):
        report.enqueue("gold")
        report.enqueue("tin")
    work = app.work_queue("fair")
    for _ in range(60):
        work.store.run(work.calls.admit(4))

    (queue,) = read_limits(system).queues

    gold, tin = sorted(queue.tenants, key=lambda tenant: tenant.tenant)
    assert (gold.weight, gold.asked, tin.weight, tin.asked) == (3, 0.75, 1, 0.25)
    assert gold.waiting + tin.waiting == 800 - 240
    assert gold.started + tin.started > 0  # a sample: one call in four, about
    assert gold.got == pytest.approx(0.75, abs=0.1)
    with server.client() as client:
        (shares,) = client.keys("mqw:{fair}:shares:*")[:1]
        assert 0 < client.pttl(shares) <= 600_000


def test_of_very_many_limits_the_first_are_looked_at(app: App, system: System) -> None:
    report = app.task(name="shop.report", queue="fair", fair_by="{tenant}")(lambda tenant: tenant)
    report.enqueue_many([(f"tenant-{number}",) for number in range(MOST_LIMITS + 20)])

    (queue,) = read_limits(system).queues

    assert (queue.combinations, queue.is_whole, len(queue.tenants)) == (MOST_LIMITS + 20, False, MOST_LIMITS)


def test_a_foreign_key_in_the_place_of_limits_does_not_hide_the_others(
    app: App, system: System, server: RealServer
) -> None:
    app.task(name="shop.mail", rate="1/m")(lambda: None).enqueue()
    with server.client() as client:
        client.sadd("mqw:queues", "broken")
        client.set("mqw:{broken}:limits", "mine")

    assert [queue.queue for queue in read_limits(system).queues] == ["default"]


def test_a_bucket_by_hand() -> None:
    view = bucket_view(("q", "t", 0), (10, 1_000, 10), 10_400, at_ms=10_000, permit_ms=200)

    assert (view.most_tokens, view.tokens, view.next_token_ms) == (8.0, 4.0, 0)
