"""The SQL of this app, the same on both engines. Many rows go in one statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol, TypeVar

from rowlock import Batch, Rowlock

from .uploads import Item
from .web.page import Page

T = TypeVar("T")
ROWS = 125  # in one statement


class Session(Protocol):
    """What `app.transaction()` and `ctx.transaction()` give."""

    async def execute(self, sql: str, *args: Any) -> None: ...
    async def fetch(self, sql: str, *args: Any) -> list[Any]: ...


async def add_import(
    tx: Session, import_id: str, user_id: str, source_type: str, total: int, created_at: datetime
) -> None:
    """A new import, of which nothing is read yet."""
    await tx.execute(
        """
        INSERT INTO bookmarks_imports (id, user_id, source_type, total_items, created_at)
        VALUES ($1, $2, $3, $4, $5)
        """,
        import_id,
        user_id,
        source_type,
        total,
        created_at,
    )


async def add_links(tx: Session, items: Sequence[Item]) -> None:
    """The links of a portion, each once. In the order of ids: two imports of one file must not wait for each other in a
    circle."""
    now = datetime.now(UTC)
    for links in _few(sorted({item.link for item in items if item.link is not None})):
        await tx.execute(
            f"""
            INSERT INTO bookmarks_links (created_at, id, url, host)
            VALUES {_places(len(links), common=1, own=3)}
            ON CONFLICT (id) DO NOTHING
            """,
            now,
            *(value for link in links for value in link),
        )


async def add_placements(tx: Session, import_id: str, user_id: str, items: Sequence[Item]) -> None:
    """Where the bookmarks of a portion lie."""
    for some in _few(items):
        await tx.execute(
            f"""
            INSERT INTO bookmarks_placements
                (import_id, user_id, position, link_id, skipped, url, title, folder, added_at)
            VALUES {_places(len(some), common=2, own=7)}
            """,
            import_id,
            user_id,
            *(value for item in some for value in _placement(item)),
        )


def _placement(item: Item) -> tuple[Any, ...]:
    href, title, folder, added, _ = item.bookmark
    when = None if added is None else datetime.fromtimestamp(added, UTC)
    return item.position, item.link and item.link.id, item.skipped, href, title, folder, when


async def count_without_job(tx: Session, import_id: str, number: int) -> None:
    """So many more bookmarks wait for no job of this import."""
    await tx.execute("UPDATE bookmarks_imports SET without_job = without_job + $1 WHERE id = $2", number, import_id)


async def wait_for_placing(tx: Session, import_id: str) -> None:
    """Until no other import is in the middle of a portion. One that is has written to its own row before it looked for
    jobs of its links, and we write to that row, too: not FOR UPDATE, which SQLite does not have."""
    await tx.execute(
        "UPDATE bookmarks_imports SET without_job = without_job WHERE state IS NULL AND id <> $1", import_id
    )


async def left_to(app: Rowlock, import_id: str) -> list[Sequence[Any]]:
    """Id and host of the links of an import that another one has too, unless that is cancelled, and of which neither a
    page nor a reason why there is none is known."""
    return await app.fetch(
        """
        SELECT l.id, l.host
        FROM bookmarks_links l
        WHERE l.dead_code IS NULL
          AND NOT EXISTS (SELECT 1 FROM bookmarks_pages p WHERE p.link_id = l.id)
          AND l.id IN (SELECT own.link_id FROM bookmarks_placements own WHERE own.import_id = $1)
          AND l.id IN (
              SELECT others.link_id
              FROM bookmarks_placements others
              JOIN bookmarks_imports i ON i.id = others.import_id
              WHERE i.id <> $1 AND coalesce(i.state, '') <> 'cancelled')
        """,
        import_id,
    )


async def end_import(tx: Session, batch: Batch) -> None:
    """Keep what the batch counted: batches are pruned, imports are not."""
    await tx.execute(
        """
        UPDATE bookmarks_imports
        SET state = $2, processed_items = without_job + $3, failed_items = $4, last_error = $5, started_at = $6,
            finished_at = $7
        WHERE id = $1
        """,
        batch.id,
        batch.state,
        batch.processed,
        batch.failed,
        batch.last_error if batch.failed else None,  # else that of a job that an operator has retried since
        batch.started_at,
        batch.finished_at,
    )


async def find_import(tx: Session, import_id: str) -> dict[str, Any] | None:
    """The row of an import."""
    columns = (
        "user_id, source_type, total_items, without_job, state, processed_items, failed_items, last_error, "
        "created_at, started_at, finished_at"
    )
    rows = await tx.fetch(f"SELECT {columns} FROM bookmarks_imports WHERE id = $1", import_id)
    if not rows:
        return None
    found = dict(zip(columns.split(", "), rows[0], strict=True))
    for name in ("created_at", "started_at", "finished_at"):
        found[name] = _moment(found[name])
    return found


def _moment(value: datetime | str | None) -> datetime | None:
    """A time as either engine gives it: on SQLite it is text."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


async def url_of(tx: Session, link_id: str) -> str | None:
    """The URL of a link."""
    rows = await tx.fetch("SELECT url FROM bookmarks_links WHERE id = $1", link_id)
    return str(rows[0][0]) if rows else None


async def has_ended(tx: Session, import_id: str) -> bool:
    """Whether what an import has come to was kept before."""
    return bool(await tx.fetch("SELECT 1 FROM bookmarks_imports WHERE id = $1 AND state IS NOT NULL", import_id))


async def store_page(tx: Session, link_id: str, page: Page) -> None:
    """What a page says of itself, instead of what it said before."""
    await tx.execute(
        """
        INSERT INTO bookmarks_pages
            (link_id, final_url, content_type, title, description, site_name, image_url, canonical_url, icon_url,
             fetched_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (link_id) DO UPDATE
        SET final_url = excluded.final_url, content_type = excluded.content_type, title = excluded.title,
            description = excluded.description, site_name = excluded.site_name, image_url = excluded.image_url,
            canonical_url = excluded.canonical_url, icon_url = excluded.icon_url, fetched_at = excluded.fetched_at
        """,
        link_id,
        page.final_url,
        page.content_type,
        page.head.title,
        page.head.description,
        page.head.site_name,
        page.head.image_url,
        page.head.canonical_url,
        page.head.icon_url,
        datetime.now(UTC),
    )
    await tx.execute("UPDATE bookmarks_links SET dead_code = NULL, dead_message = NULL WHERE id = $1", link_id)


async def mark_dead(tx: Session, link_id: str, code: str | None, message: str | None) -> None:
    """Why a link has no page. One that has got one meanwhile is left alone."""
    await tx.execute(
        """
        UPDATE bookmarks_links SET dead_code = $2, dead_message = $3
        WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM bookmarks_pages p WHERE p.link_id = bookmarks_links.id)
        """,
        link_id,
        code,
        message,
    )


def _few(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """So many at a time that the statement is still short enough to be kept prepared, and almost always the same."""
    return (rows[n : n + ROWS] for n in range(0, len(rows), ROWS))


@cache
def _places(rows: int, common: int, own: int) -> str:
    """($1, $2, $3), ($1, $4, $5), …: the first `common` are the same in each row."""
    shared = [f"${n}" for n in range(1, common + 1)]
    values = ([*shared, *(f"${common + row * own + n}" for n in range(1, own + 1))] for row in range(rows))
    return ", ".join(f"({', '.join(row)})" for row in values)
