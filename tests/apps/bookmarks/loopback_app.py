"""The app for worker processes of tests: its web is a port of this machine, named by the environment."""

import os

from rowlock_apps.bookmarks import make_app
from rowlock_apps.bookmarks.small_web import PUBLIC, to_loopback

PORT = int(os.environ["SMALL_WEB_PORT"])


async def resolve(host: str) -> list[str]:
    return [PUBLIC]


app = make_app(resolve=resolve, dial=lambda info: to_loopback(PORT))
