"""`mqworker web`: the console, in a browser."""

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import click

from mqworker.errors import ConfigurationError
from mqworker.settings import load_settings
from mqworker.supervisor.process_title import set_title


@click.command("web")
@click.option("--listen", default="127.0.0.1:8780", show_default=True, help="host:port.")
@click.option(
    "--web-tokens",
    type=click.Path(path_type=Path),
    help="File of `role name token` lines; needed where other machines can connect.",
)
@click.option("--allow-host", "hosts", multiple=True, help="Name under which a proxy calls it; repeatable.")
@click.option(
    "--trusted-user-header", help="Header in which a proxy says who somebody is; with X-Mqworker-Role."
)
@click.option("--trusted-proxy", "proxies", multiple=True, help="Address of that proxy; repeatable.")
@click.option("-r", "--redis-url", help="Server to show.  [default: as configured, else the embedded one]")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where files are.  [default: .mqworker]")
def web_command(
    listen: str,
    hosts: tuple[str, ...],
    *,
    trusted_user_header: str | None,
    proxies: tuple[str, ...],
    **flags: str | Path | None,
) -> None:
    """Show everything in a browser, live, and act on it.

    On a loopback address without login; any other needs tokens. Stops at TERM or Ctrl-C.
    """
    missing = [name for name in ("starlette", "uvicorn", "jinja2", "multipart") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"the console needs {', '.join(missing)}: pip install 'mqworker[web]'")
    from mqworker_services.web.server import proxy_of, serve  # noqa: PLC0415 - a service, with libraries of its own

    settings, proxy = load_settings(flags), proxy_of(trusted_user_header, proxies)
    set_title("web")
    click.echo(f"console on http://{listen}/ (Ctrl-C ends it)")
    with suppress(KeyboardInterrupt):  # raised again by the server once everybody was let go
        serve(settings, listen, hosts, proxy)
