"""`mqworker keys`: make keys that sign or encrypt payloads, and see which are set."""

from __future__ import annotations

import secrets

import click

from mqworker.model.keyring import Keyring, SigningKey, new_key
from mqworker.settings import load_settings


@click.group("keys")
def keys_command() -> None:
    """Make keys that sign or encrypt payloads; see which are set."""


@keys_command.command("new")
@click.option("--encrypt", "is_encrypting", is_flag=True, help="A key that encrypts; else one that signs.")
@click.option("--id", "id_", help="Its id, stored beside everything that it seals.  [default: random]")
def new(id_: str | None, is_encrypting: bool) -> None:  # noqa: FBT001 - click's way
    """Print a new key, as a line for the file of MQWORKER_KEYS_FILE."""
    click.echo(new_key(id_ or f"k{secrets.token_hex(3)}", "encrypt" if is_encrypting else "sign"))


@keys_command.command("list")
def list_() -> None:
    """Show the ids of the keys that are set here, never a secret.

    The one that is used for new payloads comes first.
    """
    settings = load_settings()
    if settings.keys is None:
        click.echo("no keys are set: payloads are neither signed nor encrypted")
        return
    for position, key in enumerate(Keyring.from_text(settings.keys).keys):
        verb = "signs" if isinstance(key, SigningKey) else "encrypts"
        click.echo(f"{key.id}  {verb}{'' if position == 0 else ' no more, opens'}")
    if settings.accept_unsigned:
        click.echo(f"unsigned messages are run from {', '.join(settings.accept_unsigned)}")
