"""Tasks that make a result file, or try to."""

from rowlock import Context, Rowlock

CONTENT = b"frame " * 50_000


def add_file_tasks(app: Rowlock) -> None:
    """Tasks that make a file, or try to."""

    @app.task("draw", public=True)
    async def draw(ctx: Context, name: str = "film.mp4") -> str:
        ctx.result_file(name).write_bytes(CONTENT)
        return "drawn"

    @app.task("draw_much", public=True)
    async def draw_much(ctx: Context) -> None:
        ctx.result_file("film.mp4").write_bytes(CONTENT * 50)  # more than the buffers between server and client

    @app.task("draw_in_thread", public=True)
    def draw_in_thread(ctx: Context) -> None:
        ctx.result_file("film.mp4").write_bytes(CONTENT)

    @app.task("fails_after_writing", public=True, max_attempts=1)
    async def fails_after_writing(ctx: Context) -> None:
        ctx.result_file("film.mp4").write_bytes(CONTENT)
        raise RuntimeError("the last frame is missing")

    @app.task("writes_nothing", public=True)
    async def writes_nothing(ctx: Context) -> None:
        ctx.result_file("film.mp4")

    @app.task("links_elsewhere", public=True)
    async def links_elsewhere(ctx: Context) -> None:
        ctx.result_file("film.mp4").symlink_to("/etc/passwd")

    @app.task("two_files", public=True, max_attempts=1)
    async def two_files(ctx: Context) -> None:
        ctx.result_file("a").write_text("a")
        ctx.result_file("b")
