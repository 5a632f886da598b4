"""What tests do with the dashboard's page."""

import pytest
from playwright.async_api import Page, expect

from support.web.browser import HIDE

# For what the browser alone does: it is the same on both engines.
ONE_ENGINE = pytest.mark.parametrize("shop_url", ["sqlite"], indirect=True)


GO = """(hash) => new Promise((gone) => {
  const before = location.href;
  addEventListener("hashchange", () => gone(), { once: true });
  location.hash = hash;
  if (location.href === before) gone();
})"""


async def show(page: Page, view: str) -> None:
    """Go to a view by its address, as a bookmark would. Afterwards the page shows nothing of the view before it."""
    await page.evaluate(GO, f"#/{view}")


async def rest(page: Page) -> None:
    """Let the live connection rest, as in a hidden window: nothing is read again but what the reader asks for."""
    await page.evaluate(HIDE, True)
    await expect(page.locator(".live")).to_have_text("resting")


async def go_on(page: Page) -> None:
    """End the rest. The page learns that it may have missed something."""
    await page.evaluate(HIDE, False)
    await live(page)


async def confirm(page: Page, button: str) -> None:
    """Press the button of the open dialog, and wait until it has done its work."""
    await page.get_by_role("dialog").get_by_role("button", name=button).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def live(page: Page) -> None:
    await expect(page.locator(".live")).to_have_text("live")
