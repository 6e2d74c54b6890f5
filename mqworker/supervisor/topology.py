"""Topology: all children of a node and the pipes between them, a literal list in start order."""

from __future__ import annotations

from collections.abc import Sequence

from mqworker.actors import broker, heartbeat_reaper, outbox_mover, rate_limiter, recovery_scanner
from mqworker.actors.dispatcher import dispatcher
from mqworker.actors.exporter import exporter
from mqworker.actors.monitor import process as monitor_process
from mqworker.actors.worker import process as worker_process
from mqworker.supervisor import gateway_child, server_keeper, web_child
from mqworker.supervisor.child_plan import ChildPlan, Role, Topology

SERVER_KEEPER = ChildPlan("server_keeper", Role.SERVER, server_keeper.main)
"""Only without a redis_url: it keeps the embedded server up."""


CONSOLE = ChildPlan(web_child.WEB_CHILD, Role.GATEWAY, web_child.main)
"""Only with the setting `web`."""
MONITOR = ChildPlan("monitor", Role.MONITOR, monitor_process.main)
"""Only with the setting `http`: first of all, so that a start can be watched."""


def node_topology(
    workers: int, gateways: Sequence[str] = (), *, has_exporter: bool = False, has_outbox: bool = False
) -> Topology:
    """The children of a node with so many workers, and with these gateways.

    The exporter only where it traces, the mover only where a database has an outbox.
    """
    movers = (ChildPlan("outbox_mover", Role.ACTOR, outbox_mover.main),) if has_outbox else ()
    exporters = (ChildPlan("exporter", Role.ACTOR, exporter.main, peers=("broker",)),) if has_exporter else ()
    return (
        (ChildPlan("broker", Role.ACTOR, broker.main),),
        (
            ChildPlan("heartbeat_reaper", Role.REAPER, heartbeat_reaper.main),
            ChildPlan("recovery_scanner", Role.ACTOR, recovery_scanner.main),
            ChildPlan("rate_limiter", Role.ACTOR, rate_limiter.main),
            *exporters,
            *movers,
        ),
        (
            ChildPlan(
                "dispatcher",
                Role.DISPATCHER,
                dispatcher.main,
                peers=("rate_limiter", *(each.name for each in exporters)),
            ),
        ),
        tuple(
            ChildPlan(
                f"worker:{number}",
                Role.WORKER,
                worker_process.main,
                peers=("dispatcher",),
                check_import=worker_process.check_import,
            )
            for number in range(workers)
        ),
        tuple(
            ChildPlan(f"gateway:{name}", Role.GATEWAY, gateway_child.main, peers=("broker", "dispatcher"))
            for name in gateways
        ),
    )
