"""The SQL of this app, one text for both engines. One statement writes many rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

from rowlock import Rowlock

from .uploads import Item
from .web.fetch import Page

T = TypeVar("T")
ROWS = 125  # in one statement


class Session(Protocol):
    """What `app.transaction()` and `ctx.transaction()` give."""

    async def execute(self, sql: str, *args: Any) -> None: ...
    async def fetch(self, sql: str, *args: Any) -> list[Any]: ...


class NewImport(NamedTuple):
    """The columns of an import that are known before its first bookmark is placed."""

    id: str
    user_id: str
    source_type: str
    total_items: int
    encoding: str
    replaced_characters: int
    created_at: datetime


async def add_import(tx: Session, new: NewImport) -> None:
    """A new import, of which nothing is read yet."""
    await tx.execute(
        """
        INSERT INTO bookmarks_imports
            (id, user_id, source_type, total_items, encoding, replaced_characters, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        """,
        *new,
    )


async def add_links(tx: Session, items: Sequence[Item]) -> None:
    """The links of a portion, each once. In the order of ids: two imports of one file must not wait for each other in a
    circle."""
    now = datetime.now(UTC)
    for links in few(sorted({item.link for item in items if item.link is not None})):
        await tx.execute(
            f"""
            INSERT INTO bookmarks_links (created_at, id, url, host)
            VALUES {places(len(links), common=1, own=3)}
            ON CONFLICT (id) DO NOTHING
            """,
            now,
            *(value for link in links for value in link),
        )


async def add_placements(tx: Session, import_id: str, user_id: str, items: Sequence[Item]) -> None:
    """Store the folders of the bookmarks of a portion."""
    for some in few(items):
        await tx.execute(
            f"""
            INSERT INTO bookmarks_placements
                (import_id, user_id, position, link_id, skipped, url, title, folder, added_at)
            VALUES {places(len(some), common=2, own=7)}
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
    """Count bookmarks that wait for no job of this import as processed."""
    await tx.execute("UPDATE bookmarks_imports SET without_job = without_job + $1 WHERE id = $2", number, import_id)


async def end_import(tx: Session, import_id: str) -> None:
    """Store the final state and counters of an import: its batch is pruned later, the import is not."""
    await tx.execute(
        """
        UPDATE bookmarks_imports
        SET state = v.status, processed_items = v.processed_items, failed_items = v.failed_items,
            last_error = v.last_error, started_at = v.started_at, finished_at = v.finished_at
        FROM bookmarks_import_jobs v
        WHERE bookmarks_imports.id = $1 AND v.id = $1
        """,
        import_id,
    )


async def find_import(app: Rowlock, import_id: str) -> dict[str, Any] | None:
    """The present state of an import, in the columns of `Import`."""
    columns = (
        "v.id, v.user_id, v.source_type, v.status, v.total_items, v.processed_items, v.failed_items, v.created_at, "
        "v.started_at, v.finished_at, v.last_error, i.encoding, i.replaced_characters"
    )
    rows = await app.fetch(
        f"SELECT {columns} FROM bookmarks_import_jobs v JOIN bookmarks_imports i ON i.id = v.id WHERE v.id = $1",
        import_id,
    )
    if not rows:
        return None
    names = [column.partition(".")[2] for column in columns.split(", ")]
    found = dict(zip(names, rows[0], strict=True))
    return found | {name: _moment(found[name]) for name in ("created_at", "started_at", "finished_at")}


async def cancel_import(tx: Session, import_id: str, now: datetime) -> None:
    """Mark an import as cancelled whose own jobs were over already."""
    await tx.execute(
        "UPDATE bookmarks_imports SET canceled_at = coalesce(canceled_at, $2) WHERE id = $1", import_id, now
    )


def _moment(value: datetime | str | None) -> datetime | None:
    """A time as either engine gives it: on SQLite it is text."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


async def url_of(tx: Session, link_id: str) -> str | None:
    rows = await tx.fetch("SELECT url FROM bookmarks_links WHERE id = $1", link_id)
    return str(rows[0][0]) if rows else None


async def has_ended(tx: Session, import_id: str) -> bool:
    """Whether the final state of an import was stored before."""
    return bool(await tx.fetch("SELECT 1 FROM bookmarks_imports WHERE id = $1 AND state IS NOT NULL", import_id))


async def store_page(tx: Session, link_id: str, page: Page) -> None:
    """Store the head of a page in place of what was stored."""
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
    """Store why a link has no page, unless it has got one meanwhile."""
    await tx.execute(
        """
        UPDATE bookmarks_links SET dead_code = $2, dead_message = $3
        WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM bookmarks_pages p WHERE p.link_id = bookmarks_links.id)
        """,
        link_id,
        code,
        message,
    )


def few(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Groups of a fixed size: short enough for the cache of prepared statements, and nearly always one text."""
    return (rows[n : n + ROWS] for n in range(0, len(rows), ROWS))


@cache
def places(rows: int, common: int, own: int) -> str:
    """($1, $2, $3), ($1, $4, $5), …: the first `common` parameters are shared by all rows."""
    shared = [f"${n}" for n in range(1, common + 1)]
    values = ([*shared, *(f"${common + row * own + n}" for n in range(1, own + 1))] for row in range(rows))
    return ", ".join(f"({', '.join(row)})" for row in values)
