"""The app or database that a command works on, and the user who runs it, for the audit log.

Precedence of settings: flags, the app's code (`Rowlock("postgresql://…")`), environment, file, defaults.
"""

from __future__ import annotations

import getpass
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from rowlock.cli.kit.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.kit.output import printable, show, show_json
from rowlock.core.errors import ConfigError

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.audit import Actor
    from rowlock.store.engine.operation import Operation

T = TypeVar("T")


def actor() -> Actor:
    from rowlock.store.audit import Actor

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # in a container, the user may have no name
        user = "?"
    return Actor(f"{user}@{socket.gethostname()}", "cli")


async def audited(app: Rowlock, change: Awaitable[T], action: str, what: str | Callable[[T], str], **details: Any) -> T:
    """Make a change and write it to the audit log in one transaction. `what` is the name or id of the changed thing, or
    a function that takes it from the change's answer; if that returns "", nothing was changed, or logged."""
    from rowlock.store import audit

    async with app.transaction() as transaction:
        answer = await change
        if name := what(answer) if callable(what) else what:
            await transaction.run(audit.write_alone(actor(), action, name, details))
    return answer


def run_async(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # imported here: --help does not need it

    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.run(work)
    return uvloop.run(work)


@dataclass(frozen=True, slots=True)
class Target:
    """The options that name the app and the database."""

    app: AppOption = None
    config: ConfigOption = None
    database: DatabaseOption = None

    def run(self, work: Callable[[Rowlock], Awaitable[T]]) -> T:
        """Open the app, do the work, close the app."""
        return run_open(self.open(), work)

    def look(self, work: Callable[[Rowlock], Awaitable[T]]) -> T:
        """`run` for verbs that read or change existing data: doesn't create a missing SQLite file, whose name is
        probably mistyped."""
        from rowlock.store.engine.store import dialect_of, file_of

        app = self.open()
        if dialect_of(app.database).is_file and not file_of(app.database).exists():
            raise ConfigError(
                f"{app.database}: this file does not exist; check the URL, or create it with rowlock migrate"
            )
        return run_open(app, work)

    def ask(self, question: Operation[T]) -> T:
        """Open the database, run one operation of the store, close the database."""

        async def work(app: Rowlock) -> T:
            return await (await app.store()).run(question)

        return (self.look if question.read else self.run)(work)

    def change(
        self, work: Callable[[Rowlock], Awaitable[T]], action: str, what: str | Callable[[T], str], **details: Any
    ) -> T:
        """Open the app, make an audited change (see `audited`), close the app."""
        return self.run(lambda app: audited(app, work(app), action, what, **details))

    def open(self, flags: Mapping[str, Any] | None = None) -> Rowlock:
        """The app that the user named, else an app without tasks, configured with this command's settings."""
        from rowlock.app import Rowlock
        from rowlock.client.settings import read_settings
        from rowlock.store.engine.store import here

        name, folder = self.code, here()
        app = load_app(name) if name else Rowlock()
        url, config = app._given
        settings = read_settings(self.database or url, self.config or config, flags, folder)
        # A relative path in a flag, the environment or the file starts at the folder where the command was run, even if
        # importing the app has changed the current folder. A relative path in the app's code is left as it is.
        app.configure(settings, folder if self.database or url is None else None)
        return app

    def open_code(self, verb: str, flags: Mapping[str, Any] | None = None) -> Rowlock:
        """The user's app, for verbs that need its tasks; ConfigError if none is named."""
        if not self.code:
            raise ConfigError(f"{verb} runs your tasks: name your app with --app module:attribute or ROWLOCK_APP")
        return self.open(flags)

    @property
    def code(self) -> str | None:
        """The name of the user's app, from flag, environment or config file."""
        if self.app is not None:
            return self.app
        from rowlock.client.settings import read_settings

        return read_settings(config=self.config).app


@dataclass(frozen=True, slots=True)
class DataTarget(Target):
    """The options of a verb that prints data: the options of `Target`, and `--json`."""

    as_json: JsonOption = False

    def show(self, rows: Sequence[Any], columns: Sequence[str], empty: str, limit: int | None = None) -> None:
        """Print records as a table of these columns, or with --json all their fields. A verb with a limit reads one row
        more, so that a note on stderr can report rows that are not shown."""
        if limit is not None and len(rows) > limit:
            print(f"rowlock: only the first {limit:,} are shown; --limit shows more", file=sys.stderr)
        show(rows[:limit], columns, as_json=self.as_json, empty=empty)

    def report(self, data: Any, *lines: str) -> None:
        """Print the data with --json, and without it these lines."""
        if self.as_json:
            show_json(data)
        else:
            print("\n".join(map(printable, lines)))


def run_open(app: Rowlock, work: Callable[[Rowlock], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with app:
            return await work(app)

    return run_async(opened())


def load_app(name: str) -> Rowlock:
    """Import `module:attribute`; `module` alone means its attribute `app`."""
    from rowlock.app import Rowlock

    module_name, _, attribute = name.partition(":")
    module = _import(module_name, name)
    try:
        found = attrgetter(attribute or "app")(module)
    except AttributeError:
        hint = _apps_in(module, module_name)
        raise ConfigError(f"--app {name}: {module_name} has no attribute {attribute or 'app'!r}; {hint}") from None
    if not isinstance(found, Rowlock):
        kind = type(found).__name__
        raise ConfigError(f"--app {name}: not a Rowlock app, but of type {kind}; {_apps_in(module, module_name)}")
    return found


def _apps_in(module: ModuleType, module_name: str) -> str:
    """A hint that names the apps in the module."""
    from rowlock.app import Rowlock

    names = [key for key, value in vars(module).items() if isinstance(value, Rowlock)]
    if not names:
        return f"{module_name} has no Rowlock app: name the module with `app = Rowlock(…)`"
    return "write " + " or ".join(f"--app {module_name}:{key}" for key in names[:3])


def _import(module_name: str, name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(f"--app {name}: no module named {error.name!r} in {here} or installed") from None
        raise _broken(name, module_name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, module_name, error) from error


def _broken(name: str, module_name: str, error: BaseException) -> ConfigError:
    """An error for an app that failed to import, with the last traceback line that is in the app's own code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(os.getcwd())] or frames
    where = f" ({ours[-1].filename}:{ours[-1].lineno})" if len(ours) > 1 or ours != frames else ""
    message = str(error).partition("\n")[0]
    return ConfigError(f"--app {name}: importing {module_name} failed{where}: {type(error).__name__}: {message}")
