"""Runs every test of this folder once for each queue model that offers what the test needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker.queues.queue_model import Capability
from tests.conformance.models import MODELS, AnyQueue, Model, Servers


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(capability): skipped for models that do not offer it")


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The servers of the session."""
    started = Servers()
    with started.running:
        yield started


@pytest.fixture(params=MODELS, ids=lambda model: model.name)
def model(request: pytest.FixtureRequest) -> Model:
    """Each model in turn."""
    chosen: Model = request.param
    for mark in request.node.iter_markers("needs"):
        needed: Capability = mark.args[0]
        if needed not in chosen.capabilities:
            pytest.skip(f"{chosen.name} does not offer {needed.name}")
    return chosen


@pytest.fixture
def queue(model: Model, servers: Servers) -> AnyQueue:
    """An empty queue of its own for the test."""
    return model.open(servers)
