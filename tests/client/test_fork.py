"""A forked child opens its own database, and neither harms the other's."""

import subprocess
import sys
from pathlib import Path

FORKS = """
import asyncio, os, sys, threading
from rowlock import Rowlock

app = Rowlock(sys.argv[1])

@app.task
async def note(who: str) -> None: ...

def say(pipe, what):
    os.write(pipe, what.encode())

def wait_for(pipe, what):
    heard = os.read(pipe, 100).decode()
    assert heard == what, heard

async def enqueue_and_read(who):
    await note.enqueue(who=who)
    return await app.jobs()

note.enqueue_sync(who="parent, before")
app.run_sync(app.jobs())  # on SQLite another connection
from_parent, to_child = os.pipe()
from_child, to_parent = os.pipe()
app._portal._lock.acquire()  # as a thread does that comes for the first time
child = os.fork()
if child == 0:
    note.enqueue_sync(who="child, sync")
    asyncio.run(enqueue_and_read("child, async"))
    say(to_parent, "enqueued")
    wait_for(from_parent, "closed")
    note.enqueue_sync(who="child, after its parent has closed")
    sys.exit(0)  # the interpreter tidies up: what it does must not reach the parent's connections
app._portal._lock.release()
note.enqueue_sync(who="parent, beside")
wait_for(from_child, "enqueued")
app.run_sync(app.close())
say(to_child, "closed")
assert os.waitpid(child, 0)[1] == 0
note.enqueue_sync(who="parent, after")
print(*sorted(job.args["who"] for job in app.run_sync(app.jobs())), sep="\\n")
"""


def test_parent_and_child_enqueue_to_the_same_database_and_no_job_is_lost(app_url: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORKS, app_url], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "child, after its parent has closed",
        "child, async",
        "child, sync",
        "parent, after",
        "parent, before",
        "parent, beside",
    ], done.stderr


EXITS = """
import asyncio, gc, os, sys
from rowlock import Rowlock

app = Rowlock(sys.argv[1])

@app.task
async def note() -> None: ...

note.enqueue_sync()
child = os.fork()
if child == 0:
    for one in [one for one in gc.get_objects() if type(one).__name__ == "Connection"]:
        one.__del__() if hasattr(one, "__del__") else None  # as the interpreter does at its end, in some order
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
note.enqueue_sync()
print(len(app.run_sync(app.jobs())))
"""


def test_a_child_that_tidies_up_what_it_inherited_does_not_harm_its_parent(app_url: str) -> None:
    done = subprocess.run([sys.executable, "-c", EXITS, app_url], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2"], done.stderr


IN_A_TRANSACTION = """
import asyncio, contextvars, os, sys
from rowlock import Rowlock, StoreError

app = Rowlock(sys.argv[1])

@app.task
async def note() -> None: ...

def said_to(call, *args):
    try:
        return str(contextvars.Context().run(call, *args))
    except StoreError as error:
        return str(error)

async def main():
    async with app, app.transaction() as tx:
        await note.enqueue()
        child = os.fork()
        if child == 0:
            print(said_to(note.enqueue_sync), said_to(asyncio.run, tx.execute("SELECT 1")), sep="\\n", flush=True)
            os._exit(0)
        os.waitpid(child, 0)

asyncio.run(main())
print(len(asyncio.run(app.jobs())))
"""


def test_a_child_of_a_transaction_on_sqlite_is_told_that_it_cannot_use_the_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_A_TRANSACTION, f"sqlite:///{tmp_path}/jobs.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    opening, inside, count = done.stdout.splitlines() or [done.stderr, "", ""]
    assert "was being written when this process was forked" in opening
    assert "opened before a fork" in inside
    assert count == "1"
