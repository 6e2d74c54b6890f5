"""D33: very many schedules, three brokers, kills and stops: what was due was fired, and nothing twice."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import redis

from mqworker.log import get_logger
from mqworker.model.call_template import CallTemplate
from mqworker.model.names import QueueName
from mqworker.model.schedule import Cron, Every, Timing
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from mqworker.tasks.schedules.calls import ScheduleCalls
from mqworker.tasks.schedules.firing import ScheduleFiring
from mqworker.tasks.schedules.stored import DATA, ScheduleSpec, decode_stored
from tests.drills.conftest import Report, Sized
from tests.support.deadline import wait_until
from tests.support.messages import a_message, open_store
from tests.support.node_process import ROOT
from tests.support.real_server import RealServer

BROKERS, QUEUES = 3, 10
DUE = "mqw:{mqw:schedules}:due"
CALLS = ScheduleCalls("mqw")
DEADLINE_S = 300.0
ROUND_LIMIT_MS = 10.0
PAGE = 10_000
KINDS = ("kill", "kill", "kill", "stop", "nothing")
SERVER_KILLS = 2
ID_AT = 25  # in a record, behind its numbers


class Brokers:
    """Three of them; who was killed is started again."""

    def __init__(self, url: str) -> None:
        self._command = [sys.executable, "-m", "tests.support.firing_process", url]
        self._processes = [self._begun() for _ in range(BROKERS)]

    def kill(self, number: int) -> None:
        """SIGKILL, and a new one."""
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._begun()

    def stop_for(self, number: int, seconds: float) -> None:
        """SIGSTOP, in the middle of whatever it does."""
        self._processes[number].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._processes[number].send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill all."""
        for process in self._processes:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begun(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=ROOT, stderr=subprocess.DEVNULL)


def test_d33_what_was_due_was_fired_and_nothing_twice(sized: Sized, report: Report) -> None:
    count, seconds = sized(2_000, 100_000), sized(15, 150)
    chance = random.Random(33)  # noqa: S311
    with RealServer(aof="always") as server, server.client() as client:
        store = open_store(server.url)
        store_all(store, [spec_of(number, sized(2, 100)) for number in range(count)])
        deleted_at_ms: dict[str, int] = {}
        strikes: Counter[str] = Counter()
        began = time.monotonic()
        with Brokers(server.url) as brokers:
            while (passed := (time.monotonic() - began) / seconds) < 1:
                kind = (
                    "server"
                    if passed > (1 + strikes["server"]) / (1 + SERVER_KILLS)
                    else chance.choice(KINDS)
                )
                strike(kind, chance, brokers, server)
                strikes[kind] += 1
                name = name_of(chance.randrange(count))
                if name not in deleted_at_ms and chance.random() < 0.3:
                    store.run(CALLS.delete(name, DATA))
                    deleted_at_ms[name] = now_ms(client)
                time.sleep(chance.uniform(0.1, 1.0))
        until_ms = now_ms(client)
        fire_the_rest(store, client, until_ms)

        fired = Counter(itertools.chain.from_iterable(ids_in(client, queue) for queue in range(QUEUES)))
        specs = stored_specs(client)
        due = {
            f"{spec.name}@{tick}" for spec in specs for tick in ticks(spec.timing, spec.since_ms, until_ms)
        }
        of_deleted = [each for each in fired if each.partition("@")[0] in deleted_at_ms]
        in_time = {each for each in fired.keys() - set(of_deleted) if int(each.partition("@")[2]) <= until_ms}
        report(
            f"{count:,} schedules, {BROKERS} brokers, {sum(strikes.values())} strikes "
            f"({', '.join(f'{kind} {times}' for kind, times in sorted(strikes.items()))}), "
            f"{len(deleted_at_ms)} deleted: due {len(due):,}, fired {len(in_time):,}, "
            f"twice {sum(times > 1 for times in fired.values())}"
        )
        assert [each for each, times in fired.items() if times > 1] == []
        assert in_time == due
        assert len(specs) == count - len(deleted_at_ms)
        assert all(
            int(each.partition("@")[2]) <= deleted_at_ms[each.partition("@")[0]] for each in of_deleted
        )
        store.close()


def test_d33b_a_round_in_which_nothing_is_due_is_short(sized: Sized, report: Report) -> None:
    count = sized(20_000, 100_000)
    with RealServer() as server:
        store = open_store(server.url)
        call = CallTemplate(QueueName("q"), a_message(b""))
        yearly = [
            ScheduleSpec(name_of(number), Cron("0 3 1 1 *"), "skip", 0, call) for number in range(count)
        ]
        store_all(store, yearly)
        firing = firing_of(store)
        wait_until(lambda: firing.fire() != 0, "all were looked at once", DEADLINE_S)

        took_ms = sorted(round_ms(firing) for _ in range(200))

        report(
            f"{count:,} schedules, nothing due: a round takes {took_ms[100]:.2f} ms in the median, "
            f"{took_ms[197]:.2f} ms at the 99th percentile"
        )
        assert took_ms[100] < ROUND_LIMIT_MS
        store.close()


def name_of(number: int) -> str:
    return f"tenant{number % 500}/s{number}"


def spec_of(number: int, least_s: int) -> ScheduleSpec:
    """One in twenty comes each minute, all at once; the others at different intervals."""
    timing: Timing = (
        Cron("* * * * *", "Europe/Berlin") if number % 20 == 0 else Every((least_s + number % 7) * 1000)
    )
    call = CallTemplate(QueueName(f"q{number % QUEUES}"), a_message(b""))
    return ScheduleSpec(name_of(number), timing, "all", 0, call)


def store_all(store: Store, specs: Sequence[ScheduleSpec]) -> None:
    for start in range(0, len(specs), 1_000):
        assert store.run(CALLS.store(DATA, specs[start : start + 1_000])) == []


def strike(kind: str, chance: random.Random, brokers: Brokers, server: RealServer) -> None:
    number = chance.randrange(BROKERS)
    if kind == "kill":
        brokers.kill(number)
    elif kind == "stop":
        brokers.stop_for(number, chance.uniform(0.5, 3.0))
    elif kind == "server":
        server.kill()
        server.start(wait=False)
        wait_until(lambda: is_there(server), "the server has read its log", DEADLINE_S)


def is_there(server: RealServer) -> bool:
    with suppress(redis.ConnectionError, redis.exceptions.BusyLoadingError), server.client() as client:
        return bool(client.ping())
    return False


def firing_of(store: Store) -> ScheduleFiring:
    return ScheduleFiring(store, "mqw", lambda queue: WorkQueue(queue, store), get_logger())


def fire_the_rest(store: Store, client: redis.Redis, until_ms: int) -> None:
    """What the last kill left behind."""
    firing = firing_of(store)

    def is_done() -> bool:
        while firing.fire() == 0:
            pass
        return (
            client.zcount(DUE, "-inf", until_ms) == 0 and now_ms(client) > until_ms + 2_500
        )  # the claims ended

    wait_until(is_done, "nothing is due any more", DEADLINE_S)


def ticks(timing: Timing, since_ms: int, until_ms: int) -> Iterator[int]:
    return itertools.takewhile(lambda tick_ms: tick_ms <= until_ms, timing.ticks_after(since_ms))


def ids_in(client: redis.Redis, queue: int) -> Iterator[str]:
    ready = f"mqw:{{q{queue}}}:ready"
    for start in range(0, client.llen(ready), PAGE):
        for record in client.lrange(ready, start, start + PAGE - 1):
            yield record[ID_AT:].partition(b" ")[0].decode()


def stored_specs(client: redis.Redis) -> list[ScheduleSpec]:
    return [decode_stored(name, text) for name, text in client.hscan_iter("mqw:schedules", count=1_000)]


def round_ms(firing: ScheduleFiring) -> float:
    began = time.perf_counter()
    firing.fire()
    return (time.perf_counter() - began) * 1000


def now_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
