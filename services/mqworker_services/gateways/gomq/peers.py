"""What a client is called in the keys of the document: `address:port`, from what grpcio says. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote

_OWN_NAME = re.compile(r"[A-Za-z0-9.-]{1,64}", re.ASCII)


def peer_name(told: str, own_name: str | None) -> str:
    """`127.0.0.1:46354` for `ipv4:127.0.0.1:46354`, `[::1]:49806` for `ipv6:%5B::1%5D:49806`.

    A unix socket has neither address nor port, and grpcio does not tell its connections apart. Clients do
    that themselves, by a name of their own in the metadata; those that give none are one peer.
    """
    scheme, _, address = unquote(told).partition(":")
    if scheme == "unix":
        is_fit = own_name is not None and _OWN_NAME.fullmatch(own_name)
        return f"unix:{own_name if is_fit else 'anonymous'}"
    # A zone may have any name, and '_' joins the names of keys.
    return address.replace("_", "-") or scheme or "unknown"
