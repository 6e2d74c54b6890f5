"""`mqworker serve`: a gateway with the actors it needs, and no task workers."""

import time
from pathlib import Path
from typing import Any

import click

from mqworker.cli.run import run_node
from mqworker.errors import ConfigurationError
from mqworker.log import configure_logging
from mqworker.model.gateway_options import DEFAULT_PORT_BY_GATEWAY
from mqworker.settings import load_settings
from mqworker.supervisor.child_entry import EXIT_CONFIGURATION

TRY_AGAIN_S = 60


@click.command("serve")
@click.argument("gateway", type=click.Choice(sorted(DEFAULT_PORT_BY_GATEWAY)))
@click.option("--listen", help="host:port or unix:/path.  [default: the gateway's port on 127.0.0.1]")
@click.option("--gateway-token", help="What clients must know; `ps` shows it, so better by file or variable.")
@click.option("--gateway-token-file", type=click.Path(path_type=Path), help="A file with that token.")
@click.option("--gateway-users-file", type=click.Path(path_type=Path), help="Users and permissions, TOML.")
@click.option("--gateway-tls-certificate", type=click.Path(path_type=Path), help="A certificate chain, PEM.")
@click.option("--gateway-tls-key", type=click.Path(path_type=Path), help="Its private key, PEM.")
@click.option(
    "--gateway-tls-client-ca", type=click.Path(path_type=Path), help="Ask for certificates it signed."
)
@click.option("--gateway-max-connections", help="Clients at once.  [default: 1000]")
@click.option("--gateway-idle-s", help="Close a connection silent for so long.  [default: 300]")
@click.option("--option", "gateway_options", multiple=True, help="key=value, for this gateway alone.")
@click.option("--conf", type=click.Path(path_type=Path), help="skmq only: its document's conf.json.")
@click.option("--dbconf", type=click.Path(path_type=Path), help="skmq only: its document's dbconf.json.")
@click.option("--http", help="Answer probes and metrics there: host:port, such as 127.0.0.1:9464.")
@click.option("--patient", is_flag=True, help="When it cannot start, say why and try again each minute.")
@click.option("--drain-s", help="Seconds to finish at a stop.  [default: by surroundings]")
@click.option("--redis-url", help="The server to use.  [default: an embedded one]")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where files go.  [default: .mqworker]")
@click.option("--node", help="The name of this node.  [default: made from host and process]")
@click.option("--log-level", help="debug, info, warning or error.  [default: info]")
@click.option("--log-format", help="auto, json or console.  [default: auto]")
def serve_command(
    gateway: str,
    listen: str | None,
    gateway_options: tuple[str, ...],
    *,
    conf: Path | None,
    dbconf: Path | None,
    patient: bool,
    **flags: str | Path | None,
) -> None:
    """Let foreign programs in: a gateway without task workers.

    GATEWAY is skmq (TCP), gomq (gRPC) or redismq (RESP). The same as `mqworker run --gateway`, on a node that
    runs no tasks. Any address but a loopback one needs TLS, and a token, users or client certificates.
    """
    files = _files(gateway, conf, dbconf)
    listen = listen or files.get("listen")
    flags["redis_url"] = flags["redis_url"] or files.get("redis_url")
    place = gateway if listen is None else f"{gateway}={listen}"
    options = [f"{gateway}.{option}" for option in (*files.get("options", ()), *gateway_options)]
    settings = load_settings({**flags, "gateways": [place], "gateway_options": options or None})
    configure_logging(settings.log_level, settings.log_format)
    code = run_node(settings, None, workers=0)
    while patient and code == EXIT_CONFIGURATION:
        # As one line of a Procfile: when one program ends, the runner ends all others.
        click.echo(
            f"mqworker: {gateway} cannot start, see above; the others go on, and it tries again in "
            f"{TRY_AGAIN_S} s",
            err=True,
        )
        time.sleep(TRY_AGAIN_S)
        code = run_node(settings, None, workers=0)
    click.get_current_context().exit(code)


def _files(gateway: str, conf: Path | None, dbconf: Path | None) -> dict[str, Any]:
    """What the two files of the SKMQ document say; the command line goes before them."""
    if conf is None and dbconf is None:
        return {}
    if gateway != "skmq":
        raise ConfigurationError(f"--conf or --dbconf is given for {gateway}; accepted is skmq")
    from mqworker_services.gateways.skmq.options import read_conf, read_dbconf  # noqa: PLC0415 - a service, and seldom needed

    found: dict[str, Any] = {}
    if conf is not None:
        options, found["listen"] = read_conf(conf)
        found["options"] = [f"{name}={value}" for name, value in options.items()]
    if dbconf is not None:
        found["redis_url"] = read_dbconf(dbconf)
    return found
