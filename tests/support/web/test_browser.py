"""Where the browser of the tests comes from, and what is said when there is none."""

from pathlib import Path

import pytest

from support.servers import parts
from support.web import browser


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser, whose apt-get installs one if the file `works` is there; downloads fail."""
    apt = tmp_path / "apt-get"
    apt.write_text(
        f'#!/bin/sh\ntest "$1" = update && exit 0\necho $1 >>{tmp_path}/calls\ntest -e {tmp_path}/works || exit 1\n'
        f"echo '#!/bin/sh' >{tmp_path}/chromium && chmod +x {tmp_path}/chromium\n"
    )
    apt.chmod(0o755)
    monkeypatch.setattr(parts, "may_install", lambda: True)
    monkeypatch.setattr(parts, "SYSTEM_PATH", "/nowhere")
    monkeypatch.setattr(parts.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/sbin")
    (tmp_path / "sh").symlink_to("/bin/sh")
    (tmp_path / "chmod").symlink_to("/bin/chmod")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "downloads"))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("PLAYWRIGHT_DOWNLOAD_HOST", "http://127.0.0.1:9")
    return tmp_path


def test_a_machine_without_a_browser_gets_debians_package_once(bare: Path) -> None:
    (bare / "works").touch()
    assert browser.find_chromium() is None
    assert browser.get_chromium() == browser.get_chromium() == str(bare / "chromium")
    assert (bare / "calls").read_text() == "install\n"


def test_a_browser_that_playwright_has_downloaded_is_used(bare: Path) -> None:
    program = bare / "downloads" / "chromium-1200" / "chrome-linux64" / "chrome"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    assert browser.get_chromium() == str(program)


def test_without_any_way_to_a_browser_the_error_says_how_to_get_one(bare: Path) -> None:
    for _ in range(2):
        with pytest.raises(browser.NoBrowser, match=r"apt-get install chromium.*playwright install chromium"):
            browser.get_chromium()
    assert (bare / "calls").read_text() == "install\n"  # tried once in a run
