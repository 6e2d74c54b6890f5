"""The backbone: the files that a plain message passes, from the producer to its result, in this order.

How many there are is printed, not enforced: `pytest -s tests/architecture/test_backbone.py`. Left out are the
values in `model/`, the pipe and the loop of all actors, and the connection below the store.
"""

from tests.architecture.source_tree import ROOT, Module

CALLS = "mqworker/queues/work/calls.py"
BACKBONE = (
    "mqworker/tasks/task.py",  # a call becomes a message
    "mqworker/tasks/connections.py",  # the way into its queue
    CALLS,
    "mqworker/store/store.py",  # one round trip
    "mqworker/queues/work/scripts/enqueue.lua",  # stored; the dispatcher is woken
    "mqworker/actors/dispatcher/dispatcher.py",  # one turn, in phases
    "mqworker/actors/dispatcher/queue.py",  # one exchange: what finished is settled, more is claimed
    "mqworker/queues/work/scripts/claim.lua",  # under a lease
    "mqworker/actors/dispatcher/hand_out.py",  # who runs it
    "mqworker/actors/mail.py",  # RunDeliveries
    "mqworker/actors/worker/worker.py",
    "mqworker/tasks/running/run.py",  # the function is called
    "mqworker/actors/worker/report.py",  # DeliveriesFinished, to the dispatcher's next turn
    "mqworker/queues/work/scripts/settle.lua",  # acknowledged, the result kept
    "mqworker/tasks/job.py",  # whoever waits is told
)
AIM_FILES, AIM_SCRIPTS = 12, 3

MODULES = [path for path in BACKBONE if path.endswith(".py")]
SCRIPTS = [path for path in BACKBONE if path.endswith(".lua")]


def test_the_backbone_is_there_and_is_counted() -> None:
    missing = [path for path in BACKBONE if not (ROOT / path).is_file()]

    print(f"backbone of a plain message: {len(MODULES)} Python files and {len(SCRIPTS)} scripts", end="")  # noqa: T201 - the point
    print(f" (aim: {AIM_FILES} and {AIM_SCRIPTS})")  # noqa: T201 - the point
    assert missing == []


def test_each_module_imports_one_before_it_or_is_imported_by_one() -> None:
    imported = {path: _imported(path) for path in MODULES}

    def are_linked(one: str, other: str) -> bool:
        return _name(one) in imported[other] or _name(other) in imported[one]

    pairs = ((path, MODULES[:at]) for at, path in enumerate(MODULES) if at)
    loose = [path for path, before in pairs if not any(are_linked(path, each) for each in before)]

    assert loose == []


def test_each_script_is_called_where_the_calls_of_the_queue_are_made() -> None:
    calls = (ROOT / CALLS).read_text(encoding="utf-8")

    assert [path for path in SCRIPTS if f'"{_name(path).rpartition(".")[2]}"' not in calls] == []


def _name(path: str) -> str:
    return path.rpartition(".")[0].replace("/", ".")


def _imported(path: str) -> set[str]:
    """Names of the modules that a module imports from."""
    module = Module(path, (ROOT / path).read_text(encoding="utf-8"))
    return {name.rpartition(".")[0] for _, name in module.imports()}
