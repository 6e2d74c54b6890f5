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
from mqworker.operate.site import Site
from mqworker.queues.work.keys import strikes_key
from mqworker.store.script import RawReply

_LONGEST_MS = 366 * 24 * 3600 * 1000


def read_strikes(site: Site) -> list[Strike]:
    """Those that are in force, the oldest first."""
    key = strikes_key(site.settings.namespace)
    fields: RawReply = site.store.read([("HGETALL", key)], key)[0]
    return strikes_in(fields[1::2], site.now_ms())


def add_strike(
    site: Site, who: str, *, task: str = "*", where: Sequence[str] = (), until: str = "", reason: str = ""
) -> Strike:
    """Skip calls of a task (`shop.*`: of several) where all conditions hold, for as long as `until` says."""
    now_ms = site.now_ms()
    for_ms = None if not until else duration_ms("until", until)
    if for_ms is not None and not 0 < for_ms <= _LONGEST_MS:
        raise InvalidArgument(f"until is {shown(until)}; accepted are durations up to a year, such as 2h")
    conditions = tuple(map(parse_condition, where))
    until_ms = None if for_ms is None else now_ms + for_ms
    strike = checked_strike(
        Strike(secrets.token_hex(3), task or "*", conditions, until_ms, who, reason, now_ms)
    )
    known = read_strikes(site)
    if len(known) >= MOST_STRIKES:
        raise MqworkerError(f"there are {len(known)} strikes already; remove one first")
    key = strikes_key(site.settings.namespace)
    site.store.read([("HSET", key, strike.id, json.dumps(strike.as_fields()))], key)
    _forget_over(site)
    note(
        site,
        Deed(who, "strike", "", strike.told, 1, f"strike {strike.id} is in force", _command(strike, until)),
    )
    return strike


def remove_strike(site: Site, who: str, id_: str) -> Strike:
    """Let those calls run again; what was skipped stays a dead letter until somebody puts it back."""
    found = next((strike for strike in read_strikes(site) if strike.id == id_), None)
    if found is None:
        raise MqworkerError(f"no strike {shown(id_)} is in force; `mqworker strike list` shows all of them")
    key = strikes_key(site.settings.namespace)
    site.store.read([("HDEL", key, id_)], key)
    command = f"mqworker strike remove {id_}"
    note(site, Deed(who, "unstrike", "", found.told, 1, f"strike {id_} is removed", command))
    return found


def _forget_over(site: Site) -> None:
    """Those whose time is over are taken away when the next one comes."""
    key = strikes_key(site.settings.namespace)
    ids: RawReply = site.store.read([("HKEYS", key)], key)[0]
    living = {strike.id for strike in read_strikes(site)}
    over = [each for each in ids if each.decode(errors="replace") not in living]
    if over:
        site.store.read([("HDEL", key, *over)], key)


def _command(strike: Strike, until: str) -> str:
    words = [f"--where {key}={text}" for key, text in strike.where]
    return " ".join(
        ["mqworker strike add", f"--task {strike.task}", *words, *([f"--until {until}"] if until else [])]
    )
