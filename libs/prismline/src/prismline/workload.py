"""A workload: a function over an item, with its limits and its rules for repeated attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, overload

from prismline.errors import Permanent, WorkloadError
from prismline.results import Results
from prismline.schemas import Arguments, names_of

#: Longest time of an attempt, in seconds: a queue of SQS hides a message for at most 12 hours.
MAX_TIMEOUT = 12 * 3600.0

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Limits:
    """What one item of a workload may use. The supervisor of the runner enforces it."""

    #: Longest time of an attempt, in seconds. The process is killed after it.
    timeout: float = 300.0
    #: Attempts of an item, unless a class of errors has its own `Retry`.
    attempts: int = 3
    #: Items that one message names. An item fails alone, whatever else its message names.
    batch: int = 20
    #: Resident memory of the runner and its child processes together, in MiB.
    memory: int = 2048
    #: Processes at a time, the runner included.
    processes: int = 64
    #: Open files of a process, a usual limit of a shell.
    files: int = 1024

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int | float) or not value > 0:
                raise WorkloadError(f"The limit {name} is {value!r:.40}: it has to be a number greater than 0.")
        if self.timeout > MAX_TIMEOUT:
            raise WorkloadError(f"The limit timeout is {self.timeout:g} s: it has to be at most {MAX_TIMEOUT:g} s.")


@dataclass(frozen=True)
class Retry:
    """How often an item is attempted that fails with a certain class of errors."""

    #: Attempts in total, the first one included.
    attempts: int
    #: Seconds before the second attempt. The time doubles with each further one.
    delay: float = 1.0


@dataclass(frozen=True)
class Context:
    """What a function may know about its attempt. It asks with a parameter that is annotated `Context`."""

    #: The same in each attempt of this item, and different for each other item: use it as idempotency key.
    item_id: str
    #: 1 in the first attempt.
    attempt: int
    #: When the process is killed, in seconds since the epoch.
    deadline: float

    @property
    def remaining(self) -> float:
        """Seconds until the process is killed."""
        return self.deadline - time.time()


@dataclass(frozen=True)
class Verdict:
    """What follows from an error of an item."""

    permanent: bool
    #: Attempts that the item has in total.
    attempts: int
    #: Seconds before the second attempt.
    delay: float


@dataclass(eq=False)
class Workload(Generic[P, R]):
    """A function that Prismline can run over a list. It can still be called as a function."""

    function: Callable[P, R]
    limits: Limits = Limits()
    retry: Mapping[type[BaseException], Retry] = field(default_factory=dict)
    #: Classes of errors after which an item is not tried again.
    permanent: tuple[type[BaseException], ...] = ()
    #: The function takes a list of items, and returns a list with a value for each of them.
    vectorized: bool = False
    #: The function that is called once, after all items of a run have ended.
    finalizer: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        update_wrapper(self, self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, for instance in a test."""
        return self.function(*args, **kwargs)

    @cached_property
    def arguments(self) -> Arguments:
        """The item and the parameters that the function takes. Raises WorkloadError if they have no JSON Schema."""
        return Arguments.of(self.function, Context, vectorized=self.vectorized)

    def finalize(self, function: F) -> F:
        """Declare the function that is called after all items of a run have ended, with the results of all of them.

        @measure.finalize
        def total(results: Iterable[Result], *, threshold: float = 5.0) -> dict: ...

        It may be called again: after a process died, and after a retry of failed items has changed the results. Its
        other parameters are parameters of the run, or a `Context`. The limits of the workload hold for it.
        """
        if self.finalizer is not None:
            raise WorkloadError(f"{self.function.__qualname__} has two functions for finalize.")
        self.finalizer = function
        return function

    def check_finalizer(self) -> None:
        """Raise WorkloadError if the parameters of the function of `finalize` are not those of a run."""
        if self.finalizer is None:
            return
        names, _ = names_of(self.finalizer, Context)
        if unknown := sorted(names - self.arguments.names):
            raise WorkloadError(
                f"{self.finalizer.__qualname__} takes {', '.join(unknown)}, which is no parameter of"
                f" {self.function.__qualname__}."
            )

    def call_finalizer(self, results: Results, parameters: Mapping[str, Any], context: Context) -> Any:
        """Call the function of `finalize`. Raises Permanent if there is none, and InvalidValueError."""
        if self.finalizer is None:
            raise Permanent(f"This code of {self.function.__qualname__} has no finalize.")
        names, asks = names_of(self.finalizer, Context)
        given = {name: each for name, each in self.arguments.parameters_of(parameters).items() if name in names}
        return self.finalizer(results, **given, **({asks: context} if asks else {}))

    def judge(self, error: BaseException) -> Verdict:
        """What follows from an error of this function: the rule for the most specific class of the error counts."""
        for each in type(error).__mro__:
            if each in self.retry:
                rule = self.retry[each]
                return Verdict(permanent=False, attempts=rule.attempts, delay=rule.delay)
            if each is Permanent or each in self.permanent:
                return Verdict(permanent=True, attempts=1, delay=0.0)
        return Verdict(permanent=False, attempts=self.limits.attempts, delay=Retry.delay)


@overload
def workload(function: Callable[P, R], /) -> Workload[P, R]: ...


@overload
def workload(
    *,
    timeout: float = ...,
    attempts: int = ...,
    batch: int = ...,
    memory: int = ...,
    processes: int = ...,
    files: int = ...,
    retry: Mapping[type[BaseException], Retry] | None = ...,
    permanent: tuple[type[BaseException], ...] = ...,
    vectorized: bool = ...,
) -> Callable[[Callable[P, R]], Workload[P, R]]: ...


def workload(
    function: Callable[..., Any] | None = None,
    /,
    *,
    retry: Mapping[type[BaseException], Retry] | None = None,
    permanent: tuple[type[BaseException], ...] = (),
    vectorized: bool = False,
    **limits: Any,
) -> Any:
    """Declare a function to be a workload, with or without limits; `Limits` has their defaults and units.

    retry: attempts and delay of classes of errors, for instance `{ConnectionError: Retry(attempts=10, delay=30)}`.
    permanent: classes of errors after which an item is not tried again, like `Permanent`.
    vectorized: the function takes a list of items, at most `batch`, and returns a list with a value for each of them.
    If a call fails, each of its items is called alone. The timeout is that of a call.

    A function without the decorator is a workload with the default limits.
    """
    if function is not None:
        return Workload(function)
    chosen = Limits(**limits)

    def declared(decorated: Callable[P, R]) -> Workload[P, R]:
        return Workload(decorated, chosen, dict(retry or {}), permanent, vectorized)

    return declared
