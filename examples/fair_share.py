"""Tenants that take turns: one floods the queue, the others hardly notice.

    mqworker run fair_share:app     # in one terminal
    python fair_share.py            # in another, in the same folder

`fair_by` names the argument that says whose call it is. The calls of a tenant stay in order; tenants take
turns, here with two calls each time for the one who pays for it. Such tasks have a queue of their own.
"""

import time

from mqworker import App, Fair, as_completed

app = App("fair_share")


@app.task(queue="reports", fair_by=Fair("{tenant}", weights={"gold": 2}))
def report(tenant: str, number: int) -> str:
    """Make a report; it takes a moment."""
    time.sleep(0.01)
    return f"{tenant} {number}"


def main() -> None:
    """Let one tenant enqueue two hundred reports, two others a few after that."""
    jobs = report.enqueue_many([("flood", number) for number in range(200)])
    jobs += report.enqueue_many([(tenant, number) for tenant in ("gold", "small") for number in range(5)])
    done_by_tenant = {"flood": 0, "gold": 0, "small": 0}
    for job in as_completed(jobs, timeout=30):
        tenant, _, _ = job.result().partition(" ")
        done_by_tenant[tenant] += 1
        if done_by_tenant["gold"] == done_by_tenant["small"] == 5:
            break
    print(f"gold and small are done; of the flood {done_by_tenant['flood']} of 200 were made meanwhile")


if __name__ == "__main__":
    main()
