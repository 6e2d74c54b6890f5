"""A message in a long line is found where its id says, and nowhere else is it claimed to be."""

from __future__ import annotations

from mqworker.model.message_id import MessageIdSource, made_at_ms
from mqworker.operate.quick_find import SHORT_LINE, find_in_long_line
from mqworker.operate.system import System
from tests.support.messages import a_message, new_id, some_messages


def test_an_id_tells_when_it_was_made() -> None:
    assert made_at_ms(MessageIdSource(lambda: 1_794_967_000_123).next()) == 1_794_967_000_123
    assert made_at_ms("order-7") is None
    assert made_at_ms("z" * 17) is None


def test_it_is_found_where_the_search_finds_it(system: System) -> None:
    queue = system.open_queue("big")
    messages = [message for _ in range(SHORT_LINE // 500 + 2) for message in some_messages(500)]
    for start in range(0, len(messages), 500):
        queue.enqueue(*messages[start : start + 500])
    queue.cancel(messages[10].id)  # leaves a hole

    for at in (0, 9, 700, len(messages) // 2, len(messages) - 1):
        found = find_in_long_line(queue, messages[at].id)

        assert found is not None
        assert found == queue.find(messages[at].id)
        assert found.position == at


def test_what_is_not_in_the_line_is_left_to_the_search(system: System) -> None:
    queue = system.open_queue("big")
    for _ in range(SHORT_LINE // 1_000 + 1):
        queue.enqueue(*some_messages(1_000))
    held = queue.claim(consumer="web.a.1")[0]
    chosen = a_message(id="order-7")
    queue.enqueue(chosen)

    assert find_in_long_line(queue, held.id) is None
    assert find_in_long_line(queue, new_id()) is None
    assert find_in_long_line(queue, chosen.id) is None
    assert system.find(held.id, "big")[1].where.state == "leased"
    assert system.find(chosen.id, "big")[1].where.state == "ready"
