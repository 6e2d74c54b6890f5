"""The task bodies, the same for every contestant. Standard library only."""

from __future__ import annotations

import asyncio
import time

from bench_board import Board
from bench_setup import BOARD

board = Board(BOARD)


def stamp(index: int) -> None:
    """Nothing but the mark on the board: what is left is the framework."""
    board.note_run(index)


def burn(index: int, ms: int) -> None:
    """Use the processor for so long, however often it is taken away meanwhile."""
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        pass
    board.note_run(index)


def rest(index: int, ms: int) -> None:
    """Wait, as for a socket."""
    time.sleep(ms / 1000)
    board.note_run(index)


async def rest_async(index: int, ms: int) -> None:
    """Wait, as for a socket, on the event loop."""
    await asyncio.sleep(ms / 1000)
    board.note_run(index)


def carry(index: int, text: str) -> None:
    """Large arguments and nothing else."""
    if not text:
        raise ValueError("the text was lost on the way")
    board.note_run(index)
