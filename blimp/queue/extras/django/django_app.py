"""The queue in a Django project: its settings, the tasks of its apps, transactions, connections.

    # shop/queue.py, beside settings.py with BLIMP_QUEUE = {"broker": "redis://localhost/0"}
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    app = DjangoTaskApp("shop")

    # orders/tasks.py, of an app in INSTALLED_APPS
    @app.task
    def confirm(order_id: int) -> None: ...

    # orders/views.py
    confirm.delay_on_commit(order.pk)

Run a worker with `python -m blimp.queue worker -A shop.queue:app`. Needs the extra `django`.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cache, cached_property
from typing import Any, Concatenate, Literal, Protocol, Unpack, cast, overload

from blimp.distribution import needing
from blimp.errors import ConfigError
from blimp.queue.app import TaskApp
from blimp.queue.context import RegisterBound, TaskContext
from blimp.queue.options import TaskKeywords, UnboundKeywords
from blimp.queue.protocol.annotated import P, R
from blimp.queue.publish.publisher import SendOptions
from blimp.queue.settings import AppKeywords
from blimp.queue.task import Register, Task
from blimp.suggest import suggestion

with needing("django", "blimp.queue.django needs"):
    import django
    from asgiref.sync import SyncToAsync, ThreadSensitiveContext
    from django.apps import apps
    from django.conf import ENVIRONMENT_VARIABLE, settings
    from django.core.exceptions import ImproperlyConfigured
    from django.db import DEFAULT_DB_ALIAS, Error, connections
    from django.utils.module_loading import autodiscover_modules

    from blimp.queue.extras.django.outbox import is_installed, send_on_commit

SETTING = "BLIMP_QUEUE"  # in Django's settings: a dict of the keywords of TaskApp
TASKS = "tasks"  # the module of an installed app
RELAY = "blimp.queue.extras.django.outbox:Relay"
HAS_TASKS = django.VERSION >= (6, 0)  # the first with `django.tasks`


class DjangoTask(Task[P, R]):
    """A task of a DjangoTaskApp."""

    def delay_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Do what `delay` does once the transaction of the default database is committed.

        See `apply_async_on_commit`.
        """
        self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(
        self,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        using: str | None = None,
        robust: bool = False,
        **options: Unpack[SendOptions],
    ) -> None:
        """Do what `apply_async` does once the transaction of a database is committed.

        Nothing is sent if it is rolled back, or an `atomic` block in it that has this call. Without
        a transaction it is sent at once. Arguments are as at the call, a countdown begins at the
        commit. No handle is returned, as there may never be a message; `task_id=` chooses its id.

        using: the database's alias, by default "default". Raises what `apply_async` does, at the
        call, but for LinkError. With the outbox (outbox.py) a broker that does not answer delays
        it, and no more. Without, its error is raised after the commit, or with `robust` logged by
        Django, and later callbacks of the transaction run.
        """
        self.check_sent(args, kwargs or {})
        kwargs, alias = kwargs or {}, using or DEFAULT_DB_ALIAS
        app = cast("TaskApp", self.app)
        send_on_commit(app, self.name, args, kwargs, options, using=alias, robust=robust)

    @cached_property
    def run(self) -> Callable[..., Any]:
        """The function, with connections as a request has them: wherever a worker runs it."""
        # Not `super().run`, which caches under the same name: another thread would find that one.
        function = Task.run.func(self)  # type: ignore[attr-defined]

        def run(*args: Any, **kwargs: Any) -> Any:
            with _old_connections_closed():
                return function(*args, **kwargs)

        async def run_async(*args: Any, **kwargs: Any) -> Any:
            # A thread of its own, as each request of ASGI has: in the one that asgiref shares a
            # slow query holds up all tasks, and a connection serves several at a time.
            async with ThreadSensitiveContext() as context:
                try:
                    return await function(*args, **kwargs)
                finally:
                    executor = SyncToAsync.context_to_thread_executor.pop(context, None)
                    if executor is not None:  # it used the database; the loop waits for no thread
                        executor.submit(connections.close_all)
                        executor.shutdown(wait=False)

        return run_async if self.is_async else run


class DjangoRegister(Register, Protocol):
    """What `DjangoTaskApp.task(…)` returns: it makes a task of a function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DjangoTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> DjangoTask[P, R]: ...


class DjangoRegisterBound(RegisterBound, Protocol):
    """What `DjangoTaskApp.task(bind=True, …)` returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, R]], /
    ) -> DjangoTask[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[TaskContext, P], R], /
    ) -> DjangoTask[P, R]: ...


class DjangoTaskApp(TaskApp):
    """A TaskApp of a Django project: its keywords are the dict BLIMP_QUEUE of the settings.

    Reads the settings, and sets up no Django: models cannot be imported yet. Raises ConfigError
    without BLIMP_QUEUE, or for a name in it that TaskApp does not take.
    """

    task_class = DjangoTask

    def __init__(self, name: str) -> None:
        super().__init__(name, **_keywords())

    def import_tasks(self) -> None:
        """Set up Django, unless it is, and import the module `tasks` of each installed app."""
        if not apps.ready:
            django.setup()
        autodiscover_modules(TASKS)
        if HAS_TASKS:
            from blimp.queue.extras.django.task_function import declared

            for name in declared:
                self._register(name)
        if is_installed() and RELAY not in self.extensions:
            self.extensions.append(RELAY)

    def get_task(self, name: str) -> Task:
        """Do what `TaskApp.get_task` does; a task of Django's may be in any module of an app."""
        if HAS_TASKS and name not in self.tasks:
            self._register(name)
        return super().get_task(name)

    def _register(self, name: str) -> None:
        from blimp.queue.extras.django.task_function import register

        register(self, name)

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DjangoTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> DjangoTask[P, R]: ...

    @overload
    def task(  # type: ignore[overload-overlap]
        self, /, *, bind: Literal[True], **keywords: Unpack[UnboundKeywords]
    ) -> DjangoRegisterBound: ...

    @overload
    def task(self, /, **keywords: Unpack[TaskKeywords]) -> DjangoRegister: ...

    def task(self, function: Any = None, /, **keywords: Any) -> Any:
        """Do what `TaskApp.task` does; what it makes is a DjangoTask."""
        return super().task(function, **keywords)


@cache
def default_app() -> DjangoTaskApp:
    """Return the app that BLIMP_QUEUE alone makes, named for the package of the settings."""
    return DjangoTaskApp(os.environ.get(ENVIRONMENT_VARIABLE, "django").partition(".")[0])


def _keywords() -> dict[str, Any]:
    """Return the keywords of TaskApp in Django's settings. Raises ConfigError."""
    try:
        found = getattr(settings, SETTING, None)
    except ImproperlyConfigured as error:
        raise ConfigError(f"{SETTING}: Django has no settings: {error}") from error
    where = f"{SETTING} in Django's settings"
    if not isinstance(found, dict):
        kind = "is missing" if found is None else f"is {type(found).__name__}"
        raise ConfigError(
            f"{where} {kind}: must be a dict of TaskApp's keywords, such as "
            '{"broker": "redis://localhost/0"}'
        )
    known = {*inspect.signature(TaskApp).parameters, *AppKeywords.__annotations__}
    known -= {"name", "keywords"}
    for name in found:
        if name not in known:
            near = suggestion(str(name), known)
            raise ConfigError(f"{where}: no option {name!r}{near}; TaskApp has: {sorted(known)}")
    if "broker" not in found:
        raise ConfigError(f"{where} has no 'broker', the URL of a server")
    return found


@contextlib.contextmanager
def _old_connections_closed() -> Iterator[None]:
    """Close before and after the block what Django closes around a request, in this thread.

    A connection in a transaction that begins outside stays: it is a test's, see testing.py.
    """
    theirs = [one for one in connections.all(initialized_only=True) if one.in_atomic_block]
    _close_old(theirs)
    try:
        yield
    finally:
        _close_old(theirs)


def _close_old(kept: Sequence[Any]) -> None:
    for connection in connections.all(initialized_only=True):
        if connection in kept:
            continue
        with contextlib.suppress(Error):  # of the server's end; Django drops it all the same
            if connection.in_atomic_block:  # an interruption left it so, and it cannot be used
                del connections[connection.alias]
                connection.close()
            else:
                connection.close_if_unusable_or_obsolete()
