"""Loading an app by its name, `module:attribute`, as it is given to `mqworker run`. Only workers do this."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from mqworker.errors import ConfigurationError
from mqworker.tasks.app import App
from mqworker.tasks.default_app import default_app

_MOST_FRAMES = 8


def load_app(name: str, directory: Path) -> App:
    """Import the module, with `directory` first on the path, and give its app."""
    module_name, colon, attribute = name.partition(":")
    if not module_name or (colon and not attribute):
        raise ConfigurationError(f"app is {name!r}; accepted is module:attribute, such as shop.tasks:app")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"app {name!r} cannot be imported from {directory}: {error}{_place_of(error)}"
        ) from error
    except Exception as error:  # whatever a module of the user raises at import is a reason not to start
        told = (
            error.msg if isinstance(error, SyntaxError) else error
        )  # its text would name the place once more
        raise ConfigurationError(
            f"app {name!r} fails to import: {type(error).__name__}: {told}{_place_of(error)}"
        ) from error
    return _app_in(vars(module), name, attribute)


def _place_of(error: Exception) -> str:
    """The traceback in one line, without frames of ours and of the import system: innermost frame first."""
    library = str(Path(importlib.__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    users = [each for each in frames if not each.filename.startswith(("<", __file__, library))]
    places = [f"{each.filename}, line {each.lineno}" for each in reversed(users[-_MOST_FRAMES:])]
    if isinstance(error, SyntaxError):
        places.insert(0, f"{error.filename}, line {error.lineno}")
    return f" ({', called from '.join(places)})" if places else ""


def _app_in(names: dict[str, object], name: str, attribute: str) -> App:
    if attribute:
        found = names.get(attribute)
        if isinstance(found, App):
            return found
        known = sorted(key for key, value in names.items() if isinstance(value, App))
        hint = f"; the module's apps are {', '.join(known)}" if known else "; the module has no App"
        raise ConfigurationError(
            f"app {name!r} is {'not an App' if attribute in names else 'not there'}{hint}"
        )
    apps = {id(value): value for value in names.values() if isinstance(value, App)}
    if not apps and any(True for _ in default_app().registry):
        return default_app()  # its tasks were decorated with the module-level `@task`
    if len(apps) != 1:
        found = f"{len(apps)} apps; name one as {name}:attribute" if apps else "no App and no @task"
        raise ConfigurationError(f"module {name!r} has {found}")
    return next(iter(apps.values()))
