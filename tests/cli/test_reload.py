import os
from pathlib import Path

from cli.command import Cli, Inside
from rowlock.cli.run.reload import python_files


def test_a_changed_file_starts_the_worker_again_with_the_new_code(lite: Cli, lite_here: Inside) -> None:
    up = lite.start("up", "--app", "shop", "--reload")
    up.wait_for("Worker started: ")
    app = lite.folder / "shop.py"
    app.write_text(app.read_text().replace("return a + b", "return a * b"))
    os.utime(app, ns=(1, 1))  # whatever the clock's resolution
    up.wait_for("shop.py changed, restarting")
    up.wait_for("Worker started: ", times=2)
    assert lite_here.out("enqueue", "add", "a=6", "b=7", "--app", "shop", "--wait") == "42"

    app.write_text("def")
    up.wait_for("shop.py changed", times=2)
    up.wait_for("SyntaxError")
    app.write_text("from rowlock import Rowlock\napp = Rowlock()\n")
    up.wait_for("Worker started: ", times=3)
    assert up.stop() == 0
    assert up.log.count("Worker stopped: ") == 3


def test_reload_does_not_watch_installed_packages(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "b/c.py",
        ".venv/d.py",
        "node_modules/e.py",
        "env/pyvenv.cfg",
        "env/f.py",
        "env/lib/g.py",
        "h.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(str(file.relative_to(tmp_path)) for file in python_files(tmp_path)) == ["a.py", "b/c.py"]
