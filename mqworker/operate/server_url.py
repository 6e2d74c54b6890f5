"""Where the server is that a command talks to: redis_url, or the embedded server that runs here already."""

from __future__ import annotations

from mqworker.errors import StoreUnavailable
from mqworker.settings import Settings


def server_url(settings: Settings) -> str:
    """The URL. It starts no server: whoever looks must not change what there is to see."""
    if settings.redis_url is not None:
        return settings.redis_url
    from mqworker.store.embedded.share import find_server  # noqa: PLC0415 - only where it is asked for

    url = find_server(settings.data_dir)
    if url is None:
        raise StoreUnavailable(
            f"no server runs for this directory ({settings.data_dir}); start `mqworker run` or "
            "`mqworker redis`, or set redis_url",
            maybe_executed=False,
        )
    return url
