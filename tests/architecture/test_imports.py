"""The tree keeps its import directions and confinements, and the rules bite."""

from collections.abc import Callable

import pytest

from tests.architecture import import_rules as rules
from tests.architecture.source_tree import Module, modules

Check = Callable[[Module], list[str]]

CHECKS_BY_FOLDERS: list[tuple[Check, tuple[str, ...]]] = [
    (rules.wrong_directions, ("mqworker",)),
    (rules.sibling_imports, ("mqworker",)),
    (rules.private_uses, ("services", "examples")),
    (rules.misplaced_uses, ("mqworker", "services")),
    (rules.forbidden_imports, ("mqworker", "services", "examples", "benchmarks")),
]


@pytest.mark.parametrize(
    ("check", "folders"), CHECKS_BY_FOLDERS, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_tree_keeps_the_rule(check: Check, folders: tuple[str, ...]) -> None:
    assert [problem for module in modules(*folders) for problem in check(module)] == []


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (rules.wrong_directions, "mqworker/store/command.py", "from mqworker.queues.work.queue import Work"),
        (rules.wrong_directions, "mqworker/queues/work/keys.py", "def f():\n    import mqworker.tasks.app"),
        (rules.wrong_directions, "mqworker/queues/work/keys.py", "from mqworker import tasks"),
        (rules.wrong_directions, "mqworker/queues/work/keys.py", "from mqworker import App"),
        (rules.wrong_directions, "mqworker/queues/work/keys.py", "from ...tasks import app"),
        (rules.wrong_directions, "mqworker/queues/work/keys.py", "from ... import tasks"),
        (rules.wrong_directions, "mqworker/model/rate.py", "from mqworker.settings import Settings"),
        (rules.wrong_directions, "mqworker/model/rate.py", "from mqworker import log"),
        (rules.wrong_directions, "mqworker/errors.py", "from mqworker.model.rate import Rate"),
        (rules.wrong_directions, "mqworker/log.py", "from mqworker.store import keys"),
        (rules.wrong_directions, "mqworker/tasks/app.py", "import mqworker.testing"),
        (rules.wrong_directions, "mqworker/elsewhere/x.py", "from mqworker.model import rate"),
        (
            rules.sibling_imports,
            "mqworker/actors/broker.py",
            "from mqworker.actors.worker.worker import Worker",
        ),
        (rules.sibling_imports, "mqworker/actors/broker.py", "from mqworker.actors import worker"),
        (rules.sibling_imports, "mqworker/actors/mail.py", "from .worker import Worker"),
        (
            rules.sibling_imports,
            "mqworker/queues/work/queue.py",
            "from mqworker.queues.rsmq.client import RsmqClient",
        ),
        (rules.sibling_imports, "mqworker/queues/work/queue.py", "from mqworker.queues.rsmq import calls"),
        (
            rules.private_uses,
            "services/mqworker_services/gateways/gomq/session.py",
            "from mqworker.store.command import x",
        ),
        (rules.private_uses, "examples/mail.py", "import mqworker.actors.mail"),
        (rules.misplaced_uses, "mqworker/queues/work/queue.py", "import redis"),
        (rules.misplaced_uses, "mqworker/queues/work/queue.py", "from redis.asyncio import Redis"),
        (
            rules.misplaced_uses,
            "services/mqworker_services/gateways/gomq/session.py",
            "import redis.asyncio as r",
        ),
        (rules.misplaced_uses, "mqworker/actors/actor.py", "from multiprocessing import Pipe"),
        (rules.misplaced_uses, "services/mqworker_services/gateways/skmq/session.py", "import grpc"),
        (
            rules.misplaced_uses,
            "services/mqworker_services/gateways/gomq/session.py",
            "from pyspark.sql import SparkSession",
        ),
        (rules.misplaced_uses, "mqworker/log.py", "import os\nos.environ['A']"),
        (rules.misplaced_uses, "mqworker/log.py", "import os as system\nsystem.getenv('A')"),
        (rules.misplaced_uses, "mqworker/log.py", "from os import environ"),
        (rules.misplaced_uses, "mqworker/log.py", "import time\ntime.time()"),
        (rules.misplaced_uses, "mqworker/log.py", "import time as t\nt.monotonic_ns()"),
        (rules.misplaced_uses, "mqworker/log.py", "from time import perf_counter as now"),
        (rules.misplaced_uses, "mqworker/log.py", "import datetime\ndatetime.datetime.now()"),
        (rules.misplaced_uses, "mqworker/log.py", "from datetime import datetime\ndatetime.now(tz=None)"),
        (rules.misplaced_uses, "mqworker/log.py", "from datetime import date as d\nd.today()"),
        (rules.forbidden_imports, "mqworker/log.py", "import pickle"),
        (rules.forbidden_imports, "mqworker/log.py", "from marshal import loads"),
        (rules.forbidden_imports, "mqworker/log.py", "def f():\n    import yaml"),
        (rules.forbidden_imports, "mqworker/log.py", "import shelve, dill"),
    ],
)
def test_a_rule_bites(check: Check, path: str, text: str) -> None:
    assert check(Module(path, text))


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (rules.wrong_directions, "mqworker/cli/main.py", "from mqworker import __version__, store"),
        (rules.wrong_directions, "mqworker/queues/work/keys.py", "from mqworker.model.rate import Rate"),
        (
            rules.wrong_directions,
            "mqworker/queues/work/keys.py",
            "from mqworker import log\nfrom . import command",
        ),
        (rules.wrong_directions, "mqworker/model/rate.py", "from mqworker.errors import InvalidArgument"),
        (rules.wrong_directions, "mqworker/testing/plugin.py", "from mqworker.tasks.app import App"),
        (rules.wrong_directions, "mqworker/__init__.py", "from mqworker.tasks.app import App"),
        (rules.sibling_imports, "mqworker/actors/broker.py", "from mqworker.actors.mail import Mail"),
        (
            rules.sibling_imports,
            "mqworker/queues/work/queue.py",
            "from mqworker.queues import queue_model\nfrom mqworker.queues.work import calls",
        ),
        (
            rules.sibling_imports,
            "mqworker/queues/catalogue.py",
            "from mqworker.queues.rsmq.client import RsmqClient",
        ),
        (
            rules.private_uses,
            "examples/mail.py",
            "from mqworker import App\nfrom mqworker.queues import RsmqClient",
        ),
        (rules.misplaced_uses, "mqworker/store/command.py", "import redis"),
        (rules.misplaced_uses, "mqworker/store/command.py", "import time\ntime.sleep(1)"),
        (
            rules.misplaced_uses,
            "mqworker/store/command.py",
            "import os\nos.getpid()\nenviron = {}\nenviron['a']",
        ),
        (rules.misplaced_uses, "services/mqworker_services/pipeline/report.py", "import pyspark"),
    ],
)
def test_a_rule_lets_pass_what_is_allowed(check: Check, path: str, text: str) -> None:
    assert check(Module(path, text)) == []
