"""`mqworker acl`: the rules of Redis' ACL for a part of the system. Asks no server."""

from __future__ import annotations

import shlex

import click

from mqworker.model.acl import ROLES, acl_file, rules_of, settings_for
from mqworker.settings import load_settings


@click.command("acl")
@click.option("--role", type=click.Choice(list(ROLES)), help="What the user is for.")
@click.option("--namespace", help="Prefix of its keys.  [default: mqw]")
@click.option("--user", help="Its name.  [default: mqworker-ROLE]")
@click.option(
    "--queue", "queues", multiple=True, help="Also the verbs of RedisMQ on this queue; again for more."
)
@click.option("--rsmq", is_flag=True, help="Also queues of RSMQ.")
@click.option("--topics", is_flag=True, help="Also topics on GOMQ's own keys.")
@click.option("--file", "is_file", is_flag=True, help="All roles, as lines of the server's aclfile.")
def acl_command(
    role: str | None,
    namespace: str | None,
    user: str | None,
    queues: tuple[str, ...],
    *,
    rsmq: bool,
    topics: bool,
    is_file: bool,
) -> None:
    """Print what a user of the server must be allowed.

    Without --role: what the roles are. The command that is printed is for a shell in which PASSWORD is set.
    """
    chosen = load_settings({"namespace": namespace}).namespace
    if is_file:
        click.echo(acl_file([role] if role else list(ROLES), chosen), nl=False)
    elif role is None:
        for name, each in ROLES.items():
            click.echo(f"{name:10}{each.summary}")
    else:
        rules = rules_of(role, chosen, queues=queues, has_rsmq=rsmq, has_topics=topics)
        for name, value in settings_for(role, chosen).items():
            click.echo(f"# its programs need {name}={value}")
        words = " ".join(shlex.quote(rule) for rule in rules)
        click.echo(f'redis-cli ACL SETUSER {user or f"mqworker-{role}"} {words} on ">$PASSWORD"')
