"""Registry: the tasks of an app by name. The only way from a name in a message to code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from mqworker.errors import ConfigurationError, InvalidMessage, UnknownTask
from mqworker.model.annotation import Rebuild, hints_of, rebuild_by_parameter, rebuild_for
from mqworker.model.batch import RowArguments
from mqworker.model.names import QueueName, TaskName, task_name
from mqworker.tasks.binding import Binding
from mqworker.tasks.injection import Dependency, Injection
from mqworker.tasks.options import DeliveryGuarantee, TaskOptions
from mqworker.tasks.rows import NO_LIST, item_hint


class TaskDefinition:
    """A registered function with everything that can be worked out once."""

    # Any: the function's own types are kept by `Task`, which wraps this.
    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        options: TaskOptions,
        injection: Injection | None = None,
    ) -> None:
        """`injection` is that of the app whose task it is."""
        self.injection = injection or Injection()
        self.name: TaskName = task_name(name)
        self.function = function
        self.options = options
        self.binding = Binding(self.name, function, takes_rows=options.batch is not None)
        self.is_async = inspect.iscoroutinefunction(function)

    # Resolved at first use, not when decorated: annotations may name what the module defines further down.

    @cached_property
    def rebuilds(self) -> dict[str, Rebuild]:
        """How arguments become what the parameters ask for, where that takes anything."""
        wanted = set(self.binding.parameters)
        hints = {n: self._of_one_call(h) for n, h in hints_of(self.function).items() if n in wanted}
        return rebuild_by_parameter(hints)

    @cached_property
    def dependencies(self) -> dict[str, Dependency]:
        """What is injected, by parameter. Raises `ConfigurationError` for what nobody defines."""
        return self.binding.dependencies()

    @cached_property
    def rebuild_result(self) -> Rebuild | None:
        """How a stored result becomes what the function is annotated to return."""
        return rebuild_for(self._of_one_call(hints_of(self.function).get("return")))

    # Any: an annotation, of whatever type.
    def _of_one_call(self, hint: Any) -> Any:  # noqa: ANN401 - see above
        """An annotation as it is meant for one call: a function that takes batches has lists of these."""
        item = NO_LIST if self.options.batch is None else item_hint(hint)
        return hint if item is NO_LIST else item

    def arguments_for_keys(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any]:
        """Of what the keys of a call are made: its arguments by name, and the fields of a row."""
        arguments = self.binding.by_name(args, kwargs)
        return arguments if self.options.batch is None else RowArguments(arguments)

    def rebuild(self, args: list[Any], kwargs: dict[str, Any], *, first: int = 0) -> None:
        """Rebuild arguments in place, from `first` on; raises `InvalidMessage` for what does not fit."""
        for position, name in enumerate(self.binding.parameters[: len(args)]):
            if name in self.rebuilds and position >= first:
                args[position] = self._rebuilt(name, args[position])
        for name in kwargs.keys() & self.rebuilds.keys():
            kwargs[name] = self._rebuilt(name, kwargs[name])

    def _rebuilt(self, name: str, value: Any) -> Any:  # noqa: ANN401 - the user's values
        try:
            return self.rebuilds[name](value)
        except InvalidMessage as error:
            raise InvalidMessage(f"argument {name!r}: {error}") from error


class Registry:
    """All tasks of an app."""

    def __init__(self, *, default_result_ttl_ms: int = 600_000) -> None:
        self._definitions: dict[TaskName, TaskDefinition] = {}
        self.default_result_ttl_ms = default_result_ttl_ms
        self.queues_without_results: set[QueueName] = set()

    def add(self, definition: TaskDefinition) -> None:
        """Register a task; a second one of the same name is refused, unless it is the same one again."""
        known = self._definitions.get(definition.name)
        if known is not None and not _is_same(known.function, definition.function):
            raise ConfigurationError(
                f"two tasks are named {definition.name}: {_place(known.function)} and "
                f"{_place(definition.function)}; give one of them another name=..."
            )
        self._definitions[definition.name] = definition

    def get(self, name: TaskName) -> TaskDefinition | None:
        """The task of this name, if there is one."""
        return self._definitions.get(name)

    def named(self, name: str) -> TaskDefinition:
        """The task of this name; raises `UnknownTask`."""
        definition = self._definitions.get(TaskName(name))
        if definition is None:
            raise UnknownTask(f"no task is named {name!r}; known are {', '.join(sorted(self._definitions))}")
        return definition

    def delivery_of(self, name: TaskName) -> DeliveryGuarantee:
        """Whether a message of this task is acknowledged after it ran, or before ("at_most_once")."""
        definition = self._definitions.get(name)
        return "at_least_once" if definition is None else definition.options.delivery

    def result_ttl_ms(self, name: TaskName) -> int:
        """How long results of this task are kept; 0 for not at all."""
        definition = self._definitions.get(name)
        if definition is not None and definition.options.queue in self.queues_without_results:
            return 0
        own = None if definition is None else definition.options.result_ttl_ms
        return self.default_result_ttl_ms if own is None else own

    def __iter__(self) -> Iterator[TaskDefinition]:
        """All tasks, in the order of registration."""
        return iter(self._definitions.values())


def _is_same(one: Callable[..., object], other: Callable[..., object]) -> bool:
    """A module that is run as a script and imported once more defines each of its functions twice."""
    return _place(one) == _place(other) and one.__qualname__ == other.__qualname__


def _place(function: Callable[..., object]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
