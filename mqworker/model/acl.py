"""What a user of the server must be allowed for each part of a system, as rules of Redis' ACL. Pure.

Scripts run with the permissions of who calls them, command by command. So a producer that may not take from a
list or a sorted set cannot claim, however it calls the scripts. Nobody here may list keys, look at other
clients, or write outside of its namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mqworker.errors import InvalidArgument
from mqworker.model.names import DEFAULT_NAMESPACE, queue_name, shown

_NOBODY = (
    "-@admin",
    "-@dangerous",
    "-function",
    "-script",
    "-scan",
    "-randomkey",
    "-dbsize",
    "-pubsub",
    "-swapdb",
    # With BCAST it tells the names of all keys that change, those of other namespaces too.
    "-client|tracking",
)
_EVERYBODY = (
    *("+script|load", "+info", "+role", "+cluster|slots", "+cluster|shards"),
    *("+client|info", "+client|id", "+client|setname", "+client|setinfo"),
)
_KILL = "+client|kill"
"""A link that was given up is closed at the server. It closes those of others, too: not for a tenant."""
_TAKING = (
    "-lpop",
    "-lmpop",
    "-rpop",
    "-rpoplpush",
    "-lmove",
    "-blmove",
    "-@blocking",
    "-zpopmin",
    "-zpopmax",
    "-zmpop",
)
_TRIMMING = ("-xtrim", "-xdel", "-unlink", "-rename", "-renamenx", "-copy", "-move")
_FILLING = ("-rpush", "-lpush", "-linsert", "-lset", "-zadd", "-publish", "-set", "-xadd")
TOPICS = (
    "SUBSCRIBED_KEYS",
    "QUEUE_*",
    "CONSUMERS_*",
    "SUBSCRIPTIONS_*",
    "PEERS_*",
    "MESSAGES_*",
    "LASTACTION_*",
)
_LOOKED_AT = ("SUBSCRIBED_KEYS",)
"""Brokers look there whether anybody uses topics."""


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of user."""

    summary: str
    denied: tuple[str, ...] = ()
    allowed: tuple[str, ...] = (_KILL,)
    keys: tuple[str, ...] = ()


ROLES: Mapping[str, Role] = {
    "producer": Role("enqueues, waits for results, cancels; takes nothing", (*_TAKING, *_TRIMMING)),
    "worker": Role("a node: everything in the namespace", keys=_LOOKED_AT),
    "console": Role("mqworker web, and the commands that look and act", ("-@blocking",)),
    "archiver": Role("reads the events of all queues and trims what it has archived", (*_TAKING, *_FILLING)),
    "tenant": Role(
        "owns one namespace and sees nothing else: nodes, producers and console in one", allowed=()
    ),
}


def rules_of(
    role: str,
    namespace: str = DEFAULT_NAMESPACE,
    *,
    queues: Sequence[str] = (),
    has_rsmq: bool = False,
    has_topics: bool = False,
) -> tuple[str, ...]:
    """The rules, in the order in which the server applies them; without the password.

    `queues` are those that the verbs of RedisMQ are used on: in the default namespace they look at the bare
    name, too, whether something else lies there.
    """
    if role not in ROLES:
        raise InvalidArgument(f"role is {shown(role)}; accepted are {', '.join(ROLES)}")
    found = ROLES[role]
    keys = [f"{namespace}:*", *found.keys, *(TOPICS if has_topics and role != "tenant" else ())]
    if namespace == DEFAULT_NAMESPACE:
        keys += [queue_name(queue) for queue in queues]
    channels = [f"{namespace}:*"]
    if has_rsmq:
        keys.append("rsmq:*")
        channels.append("rsmq:*")
    return (
        "reset",
        *(f"~{key}" for key in dict.fromkeys(keys)),
        *(f"&{channel}" for channel in channels),
        "+@all",
        *_NOBODY,
        *found.denied,
        *_EVERYBODY,
        *found.allowed,
    )


def settings_for(role: str, namespace: str) -> Mapping[str, str]:
    """The variables that go with such a user."""
    found = {} if namespace == DEFAULT_NAMESPACE else {"MQWORKER_NAMESPACE": namespace}
    # The keys of topics have names of their own; so they stand inside of the namespace.
    return found | ({"MQWORKER_GOMQ_PREFIX": f"{namespace}:gomq:"} if role == "tenant" else {})


def acl_file(roles: Sequence[str], namespace: str = DEFAULT_NAMESPACE) -> str:
    """Lines for the server's aclfile: users that are off and have no password yet."""
    lines = (f"user mqworker-{role} {' '.join(rules_of(role, namespace))} off" for role in roles)
    return "".join(f"{line}\n" for line in lines)
