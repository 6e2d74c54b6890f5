"""The errors that only topics have."""

from __future__ import annotations

from mqworker.errors import MqworkerError


class TopicNameTaken(MqworkerError):
    """Choose another name: with the one given, the peer would read from a queue of its own other consumer.

    The documented keys join names by '_', so `A_B` with consumer `C` and `A` with `B_C` are one. `key` and
    `consumer` are those that the peer has already. Nothing was written.
    """

    def __init__(self, text: str, *, key: str, consumer: str) -> None:
        super().__init__(text)
        self.key = key
        self.consumer = consumer
