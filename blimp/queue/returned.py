"""The type variables of a task: its parameters, and what it returns.

Both have a default, so that a bare `Task` or `AsyncResult` is one of anything (PEP 696).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any, covariant=True)
else:  # before Python 3.13 those of the standard library take no default
    from typing import ParamSpec, TypeVar

    P, R = ParamSpec("P"), TypeVar("R", covariant=True)
