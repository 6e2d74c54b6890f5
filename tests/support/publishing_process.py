"""A process that publishes events until it is killed, and prints the number of each that was accepted.

Started as `python -m tests.support.publishing_process <url> <topic>`.
"""

from __future__ import annotations

import itertools
import os
import sys

from mqworker import App


def main(url: str, topic: str) -> None:
    """Publish for ever."""
    app = App("publisher", redis_url=url)
    for number in itertools.count():
        app.publish(topic, number)
        os.write(sys.stdout.fileno(), f"{number}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
