"""A small app, so that the compose file has something to run. Put your own in its place."""

from rowlock import Rowlock

app = Rowlock()


@app.task("greet", public=True)
async def greet(name: str) -> str:
    """Anybody with a token may create this job: POST /api/jobs {"jobType": "greet", "args": {"name": "Ana"}}."""
    return f"hello {name}"


@app.schedule("every 60s")
async def tick() -> None:
    """One job a minute, to see the dispatcher at work."""
