"""Strikes: which calls are not to be run, for how long, and who said so. Workers obey within two seconds."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.names import shown
from mqworker.model.strike import MOST_STRIKES, Strike, checked_strike, parse_condition, strikes_in
from mqworker.operate.audit import Deed, note
from mqworker.operate.job_filter import duration_ms
from mqworker.operate.system import System
from mqworker.queues.work.keys import strikes_key
from mqworker.store.script import RawReply

_LONGEST_MS = 366 * 24 * 3600 * 1000


def read_strikes(system: System) -> list[Strike]:
    """Those that are in force, the oldest first."""
    key = strikes_key(system.settings.namespace)
    fields: RawReply = system.store.send([("HGETALL", key)], key)[0]
    return strikes_in(fields[1::2], system.now_ms())


def add_strike(
    system: System, who: str, *, task: str = "*", where: Sequence[str] = (), until: str = "", reason: str = ""
) -> Strike:
    """Skip calls of a task (`shop.*`: of several) where all conditions hold, for as long as `until` says."""
    now_ms = system.now_ms()
    for_ms = None if not until else duration_ms("until", until)
    if for_ms is not None and not 0 < for_ms <= _LONGEST_MS:
        raise InvalidArgument(f"until is {shown(until)}; accepted are durations up to a year, such as 2h")
    conditions = tuple(map(parse_condition, where))
    until_ms = None if for_ms is None else now_ms + for_ms
    strike = checked_strike(
        Strike(secrets.token_hex(3), task or "*", conditions, until_ms, who, reason, now_ms)
    )
    known = read_strikes(system)
    if len(known) >= MOST_STRIKES:
        raise MqworkerError(f"there are {len(known)} strikes already; remove one first")
    key = strikes_key(system.settings.namespace)
    system.store.send([("HSET", key, strike.id, json.dumps(strike.as_fields()))], key)
    _forget_over(system)
    note(
        system,
        Deed(who, "strike", "", strike.told, 1, f"strike {strike.id} is in force", _command(strike, until)),
    )
    return strike


def remove_strike(system: System, who: str, id_: str) -> Strike:
    """Let those calls run again; what was skipped stays a dead letter until somebody puts it back."""
    found = next((strike for strike in read_strikes(system) if strike.id == id_), None)
    if found is None:
        raise MqworkerError(f"no strike {shown(id_)} is in force; `mqworker strike list` shows all of them")
    key = strikes_key(system.settings.namespace)
    system.store.send([("HDEL", key, id_)], key)
    command = f"mqworker strike remove {id_}"
    note(system, Deed(who, "unstrike", "", found.told, 1, f"strike {id_} is removed", command))
    return found


def _forget_over(system: System) -> None:
    """Those whose time is over are taken away when the next one comes."""
    key = strikes_key(system.settings.namespace)
    ids: RawReply = system.store.send([("HKEYS", key)], key)[0]
    living = {strike.id for strike in read_strikes(system)}
    over = [each for each in ids if each.decode(errors="replace") not in living]
    if over:
        system.store.send([("HDEL", key, *over)], key)


def _command(strike: Strike, until: str) -> str:
    words = [f"--where {key}={text}" for key, text in strike.where]
    return " ".join(
        ["mqworker strike add", f"--task {strike.task}", *words, *([f"--until {until}"] if until else [])]
    )
