"""The queue models as libraries: every public name is there, and both kinds of client have the same verbs."""

from __future__ import annotations

import pytest

from mqworker import queues
from mqworker.queues import AsyncRsmqClient, AsyncTopics, AsyncWorkQueue, RsmqClient, Topics, WorkQueue

ONLY_SYNCHRONOUS = {"capabilities", "channel", "admit", "repair", "rotate_results", "silent_consumers"}
"""A constant, the name of a channel, and what the actors of a node do to look after queues."""


def verbs(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - ONLY_SYNCHRONOUS


@pytest.mark.parametrize("name", queues.__all__)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(queues, name).__name__ == name


@pytest.mark.parametrize(
    ("client", "twin"), [(RsmqClient, AsyncRsmqClient), (Topics, AsyncTopics), (WorkQueue, AsyncWorkQueue)]
)
def test_every_verb_of_a_client_is_one_of_its_asynchronous_twin(client: type, twin: type) -> None:
    assert verbs(client) == verbs(twin)
