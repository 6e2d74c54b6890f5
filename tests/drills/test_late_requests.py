"""D20: requests arrive late: after their repetitions were answered, and after later calls."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.drill_app import ONCE_QUEUE, QUEUE
from tests.support.deadline import wait_until
from tests.support.fault_proxy import FaultProxy
from tests.support.real_server import RealServer

READ_TIMEOUT_S = 1.0
LATE_BY_S = (1.2, 3.5)
DEADLINE_S = 90.0
QUEUES = (QUEUE, ONCE_QUEUE)


class LateNetwork:
    """Holds back some of the scripts that pass a proxy, and delivers each when its sender has gone on."""

    def __init__(self, proxy: FaultProxy, most: int) -> None:
        self.answers: Counter[str] = Counter()
        self.held = 0
        self._proxy = proxy
        self._most = most
        self._chance = random.Random(1)  # noqa: S311 - which ones does not matter
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._deliver_all, daemon=True)
        proxy.hold(self._is_held)
        self._thread.start()

    def end(self) -> None:
        """Hold nothing more, and deliver what is still held."""
        self._proxy.hold(lambda _request: False)
        self._is_over.set()
        self._thread.join(30)
        assert not self._proxy.held

    def _is_held(self, request: bytes) -> bool:
        # Not two of one sender in a row: it would wait longer than the others take for its death.
        if b"EVALSHA" not in request or self.held >= self._most or self._chance.random() > 0.02:
            return False
        self.held += 1
        return True

    def _deliver_all(self) -> None:
        while self._proxy.held or not self._is_over.is_set():
            if not self._proxy.held:
                time.sleep(0.01)
                continue
            late = self._proxy.held.popleft()
            time.sleep(max(0.0, late.since_s + self._chance.uniform(*LATE_BY_S) - time.monotonic()))
            self._note("own link", self._proxy.deliver(late))
            self._note("other link", self._proxy.deliver_elsewhere(late))

    def _note(self, where: str, answer: bytes) -> None:
        what = "late" if b"-MQW_STALE" in answer else "answered" if answer else "closed"
        self.answers[f"{where}: {what}"] += 1


def test_d20_what_arrives_late_is_not_carried_out_twice(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    count, most = sized(1_500, 20_000), sized(25, 300)
    with RealServer() as server, FaultProxy(server.port) as proxy:
        scene = make_scene(proxy.url, read_timeout_s=READ_TIMEOUT_S)
        node = scene.add_node(
            url=proxy.url, settings={"read_timeout_s": READ_TIMEOUT_S, "heartbeat_timeout_s": 5.0}
        )
        node.wait_complete()
        network = LateNetwork(proxy, most)
        publishing = [
            scene.publish_beside(task, count, per_s=count / sized(12, 120), batch=3)
            for task in ("work", "once", "fail_once", "limited")
        ]
        for thread in publishing:
            thread.join(DEADLINE_S * 4)
        wait_until(lambda: network.held > most / 3, "requests were held back", DEADLINE_S)
        network.end()
        scene.wait_drained(DEADLINE_S, queues=QUEUES)
        assert node.stop() == 0

        account = scene.account(queues=QUEUES)
        answers = ", ".join(f"{what} x{times}" for what, times in sorted(network.answers.items()))
        report(f"{network.held} requests late ({answers}); {account.summary()}")
        account.check_exact()
        assert not account.unknown
        assert len(account.published) == 4 * count
        scene.close()
