"""Challenges are known by what their providers send; pages that talk about them, or use the same widgets, are pages."""

import asyncio
import time

from apps.bookmarks.conftest import Make
from apps.bookmarks.files import bookmarks_file
from apps.engines import ONE_ENGINE
from rowlock import Permanent, SourceError
from rowlock_apps.bookmarks.shared import ENRICH
from rowlock_apps.bookmarks.small_web import Behaviour, Send, answer, small_web
from rowlock_apps.bookmarks.web import challenge
from rowlock_apps.bookmarks.web.fetch import Limits, open_fetcher
from rowlock_apps.bookmarks.web.head import Head
from support.each import each

WIDGET = '<form method=post><div class="g-recaptcha" data-sitekey="x"></div><input type="hidden" name="q"></form>'
HCAPTCHA = '<script src="https://js.hcaptcha.com/1/api.js" async></script>'
TURNSTILE = '<div class="box cf-turnstile" data-sitekey="x"></div>'
DESCRIBED = '<meta name="description" content="What it is about">'


def html(title: str, body: str = "", head: str = "", status: str = "200 OK", **headers: str) -> Behaviour:
    text = f"<!doctype html><html lang=en><head><title>{title}</title>{head}</head><body>{body}</body></html>"
    return answer(text.encode(), status=status, Content_Type="text/html; charset=utf-8", **headers)


CHALLENGES = {
    "cloudflare": html(
        "Один момент…", "<script>(function(){window._cf_chl_opt = {cvId: '3'};}())</script>", status="403 Forbidden"
    ),
    "cloudflare says so": html("", status="403 Forbidden", cf_mitigated="challenge"),
    "cloudflare, older": html(
        "Bitte warten",
        '<form id="challenge-form" action="/?__cf_chl_f_tk=x" method="POST"></form>',
        status="503 Service Unavailable",
    ),
    "cloudflare, the script": html(
        "x", '<script src="/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1?ray=x"></script>'
    ),
    "a title": html("Just a moment..."),
    "a title with the site's name": html("example.com | Verify you are human"),
    "a title beside the provider's": html("Attention Required! | Cloudflare", status="403 Forbidden"),
    "a refusal that calls itself fine": html("Access Denied"),
    "reCAPTCHA before a page": html("Unusual traffic", WIDGET, status="429 Too Many Requests"),
    "hCaptcha before a page": html("Подтвердите", HCAPTCHA, status="403 Forbidden"),
    "Turnstile on a page with nothing else": html("example.com", TURNSTILE),
    "DataDome": html("example.com", '<script src="https://ct.captcha-delivery.com/c.js"></script>', status="403 No"),
    "HUMAN": html("Please wait", '<div id="px-captcha"></div>', status="403 No"),
    "Imperva": html("", '<iframe id="main-iframe" src="/_Incapsula_Resource?CWUDNSAI=9&xinfo=0"></iframe>'),
    "AWS": html("", status="405 Not Allowed", x_amzn_waf_action="captcha"),
    "AWS, the script": html("x", '<script src="https://a.token.awswaf.com/a/b/captcha.js"></script>', status="405 No"),
}
PAGES = {
    "a page with reCAPTCHA v3, which asks nobody anything": html(
        "A shop", '<script src="https://www.google.com/recaptcha/api.js?render=6Lx"></script><p>Shoes</p>'
    ),
    "an article about them": html(
        "How Cloudflare's “Just a moment...” page works", f"<p>px-captcha</p>{WIDGET}", DESCRIBED
    ),
    "an article of that name": html("Just a moment", "<p>A story</p>", DESCRIBED),
    "the product": html("reCAPTCHA", WIDGET, '<link rel="canonical" href="/recaptcha">'),
    "a page of code": html("Notes", "<pre>&lt;div id='px-captcha'&gt; window._cf_chl_opt</pre>"),
    "a login form": html("Log in", f'<input type="password" name="p">{WIDGET}'),
    "a contact form": html("Contact", f"<form><textarea name=t></textarea>{HCAPTCHA}</form>"),
    "behind Cloudflare": html("Shop", '<script src="/cdn-cgi/challenge-platform/scripts/jsd/main.js"></script>'),
    "behind Imperva": html("Shop", '<script src="/_Incapsula_Resource?SWJIYLWA=719d34d31c8e3a6e"></script>'),
    "behind DataDome": html("Shop", '<script src="https://js.datadome.co/tags.js"></script>'),
    "no title": html("", "<p>captcha captcha captcha</p>"),
}
REFUSALS: dict[str, tuple[Behaviour, str]] = {
    "plain": (html("403 Forbidden", "<p>Solve no captcha here</p>", status="403 Forbidden"), "HTTP_403"),
    "denied": (html("Access Denied", status="403 Forbidden"), "HTTP_403"),
    "maintenance": (html("Back soon", f"<textarea></textarea>{WIDGET}", status="503 Unavailable"), "HTTP_503"),
    "no page": (answer(WIDGET.encode(), status="403 No", Content_Type="application/json"), "HTTP_403"),
    "broken": (answer(b"x", status="403 No", Content_Type="text/html", Content_Encoding="gzip"), "HTTP_403"),
    "unknown packing": (answer(b"x", status="403 No", Content_Type="text/html", Content_Encoding="br"), "HTTP_403"),
}


async def fetched(behaviour: Behaviour, **limits: float) -> str:
    pages = {"a.example/": behaviour}
    async with small_web(pages) as web, open_fetcher(web.resolve, web.dial, limits=Limits(**limits)) as fetcher:
        try:
            return f"page {(await fetcher.page('http://a.example/')).head.title}"
        except (Permanent, SourceError) as error:
            return error.code


@each("name", CHALLENGES)
async def test_a_challenge_is_a_captcha(name: str) -> None:
    assert await fetched(CHALLENGES[name]) == "CAPTCHA"


@each("name", PAGES)
async def test_a_page_that_only_mentions_captchas_or_uses_one_is_a_page(name: str) -> None:
    assert (await fetched(PAGES[name])).startswith("page")


@each("name", REFUSALS)
async def test_a_refusal_without_a_challenge_is_known_by_its_status(name: str) -> None:
    behaviour, code = REFUSALS[name]
    assert await fetched(behaviour) == code


def stalls(status: bytes) -> Behaviour:
    async def send_it(send: Send) -> None:
        await send(b"HTTP/1.1 " + status + b"\r\nContent-Type: text/html\r\n\r\n<head><title>T</title></head><body>")
        await asyncio.Event().wait()

    return send_it


@each("status, end", [(b"403 Forbidden", "HTTP_403"), (b"200 OK", "page T")])
async def test_a_body_that_never_ends_does_not_change_what_is_known_already(status: bytes, end: str) -> None:
    assert await fetched(stalls(status), idle=0.2) == end


@each("unit", ["<div class=", '<div class="', "<input ", "<form action='", "<iframe src='/_Inca", "<div "])
async def test_looking_for_a_challenge_takes_no_longer_for_a_hostile_page(unit: str) -> None:
    text = unit * (challenge.MOST_BYTES // len(unit))
    began = time.process_time()
    assert not challenge.is_challenge(403, Head(), text)
    assert time.process_time() - began < 1


@ONE_ENGINE
async def test_a_challenge_is_dead_at_once_and_makes_a_block_candidate(place: Make) -> None:
    """S0.27: also one that comes with a 503, which for others means a second try."""
    it = await place({"a.example/": CHALLENGES["cloudflare, older"]})
    [one] = await it.work(await it.bring(bookmarks_file("http://a.example/")))
    assert (one.status, one.last_error) == ("failed", "CAPTCHA: a.example asks for a captcha")
    [job] = await it.app.jobs(task=ENRICH)
    assert (job.state, job.attempt) == ("dead", 1)
    assert [source.name for source in await it.app.sources.list(refused=1)] == ["domain:a.example"]
