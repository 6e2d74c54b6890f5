"""`--redis-url` and `--json` before and after a subcommand: one mechanism for every command.

Options of an outer level are remembered in `Context.meta`, which all levels share, and are the defaults of
the inner ones: whoever is named last wins. A command that declares neither option refuses it in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import click

REDIS_URL_HELP = "Server to use.  [default: as configured, else the embedded one]"
JSON_HELP = "As JSON, one document on one line."

_REDIS_URL, _JSON = "redis_url", "is_json"
_DECLARATIONS = {_REDIS_URL: ("-r", "--redis-url"), _JSON: ("--json",)}
_REMEMBERED = "mqworker.cli.shared_options."
_DONE = "_has_shared_options"


def share_options(command: click.Command) -> click.Command:
    """Let the command, and all below it, take the options at any place; the command itself, changed."""
    if not getattr(command, _DONE, False):
        setattr(command, _DONE, True)
        _share(command, frozenset())
    return command


def remembering(name: str, *, is_hidden: bool = False) -> click.Option:
    """An option of an outer level: kept for the inner ones."""
    return _option(name, _remember, is_hidden=is_hidden)


def _share(command: click.Command, outer: frozenset[str]) -> None:
    declared = outer | {str(each.name) for each in command.params}
    if isinstance(command, click.Group):
        for name in _DECLARATIONS:
            own = _param(command, name)
            if own is not None:
                _inherit(own, _remember)
            elif name in outer or _is_below(command, name):
                command.params.append(remembering(name, is_hidden=name == _JSON))
        for each in command.commands.values():
            _share(each, frozenset(declared))
        return
    for name in _DECLARATIONS:
        own = _param(command, name)
        if own is not None:
            _inherit(own, None)
        elif name == _REDIS_URL and name in declared:  # its group made a target of it
            command.params.append(_option(name, _aim_elsewhere))
        else:
            command.params.append(_option(name, _refuse, is_hidden=True))


def _option(name: str, callback: Callable[..., Any], *, is_hidden: bool = False) -> click.Option:
    option = click.Option(
        [*_DECLARATIONS[name], name],
        is_flag=name == _JSON,
        help=JSON_HELP if name == _JSON else REDIS_URL_HELP,
        expose_value=False,
        hidden=is_hidden,
        callback=callback,
    )
    option.default = _inherited(name)
    return option


def _inherit(option: click.Parameter, callback: Callable[..., Any] | None) -> None:
    option.default = _inherited(str(option.name))
    option.callback = option.callback or callback


# Any: a text or a flag, and what click passes on.
def _inherited(name: str) -> Callable[[], Any]:
    unset = False if name == _JSON else None
    return lambda: click.get_current_context().meta.get(_REMEMBERED + name, unset)


def _remember(context: click.Context, option: click.Parameter, value: Any) -> Any:  # noqa: ANN401 - click's
    if value:
        context.meta[_REMEMBERED + str(option.name)] = value
    return _aim_elsewhere(context, option, value)


def _aim_elsewhere(context: click.Context, option: click.Parameter, value: Any) -> Any:  # noqa: ANN401 - click's
    """The group made its target before this level was read: it gets the address that was given last."""
    target = context.obj
    if option.name == _REDIS_URL and value and is_dataclass(target) and not isinstance(target, type):
        context.obj = replace(target, redis_url=value)
    return value


def _refuse(context: click.Context, option: click.Parameter, value: Any) -> Any:  # noqa: ANN401 - click's
    if value and not context.resilient_parsing:
        raise click.UsageError(f"{context.command_path} has no {option.opts[-1]}")
    return value


def _param(command: click.Command, name: str) -> click.Parameter | None:
    return next((each for each in command.params if each.name == name), None)


def _is_below(command: click.Command, name: str) -> bool:
    if _param(command, name) is not None:
        return True
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return any(_is_below(each, name) for each in below)
