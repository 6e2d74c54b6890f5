"""The size of the terminal, or a default where output is not a terminal."""

from __future__ import annotations

import shutil

_PLAIN_SIZE = (100, 40)


def terminal_width() -> int:
    """How many characters fit on a line."""
    return shutil.get_terminal_size(_PLAIN_SIZE).columns


def terminal_height() -> int:
    """How many lines fit on the screen."""
    return shutil.get_terminal_size(_PLAIN_SIZE).lines
