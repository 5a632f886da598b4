"""What tests do with the dashboard's page."""

import pytest
from playwright.async_api import Page, expect

expect.set_options(timeout=30_000)  # for a busy machine; a correct page needs less than a second
# For what the browser alone does: it is the same on both engines.
ONE_ENGINE = pytest.mark.parametrize("shop_url", ["sqlite"], indirect=True)


async def show(page: Page, view: str) -> None:
    """Go to a view by its address, as a bookmark would."""
    await page.evaluate("(hash) => { location.hash = hash; }", f"#/{view}")


async def confirm(page: Page, button: str) -> None:
    """Press the button of the open dialog, and wait until it has done its work."""
    await page.get_by_role("dialog").get_by_role("button", name=button).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def live(page: Page) -> None:
    await expect(page.locator(".live")).to_have_text("live")
