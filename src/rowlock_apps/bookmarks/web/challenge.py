"""Whether an answer is a challenge: a page in front of the page, which checks whether the visitor is human.

A challenge is recognised by the scripts of its provider, not by words: a page about captchas has the words, and a login
form has a challenge's widget. Three things count, the most certain first: a header that only a challenge has; a
script or a frame that only a challenge has; and a widget or a usual title on a refusal, or on a page that has nothing
else of itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .head import Head

MOST_BYTES = 64 << 10  # of the page that are looked at
REFUSALS = (403, 405, 429, 503)  # the statuses that challenges come with, if not with 200

# What ordinary pages behind the same providers do not have: those carry Cloudflare's `challenge-platform/scripts/jsd`,
# Imperva's `_Incapsula_Resource?SWJIYLWA` and DataDome's `js.datadome.co`.
_ONLY_CHALLENGES = re.compile(
    r"window\._cf_chl_opt\s*="  # Cloudflare
    r"|/cdn-cgi/challenge-platform/[^\"'\s>]{0,80}/orchestrate/"
    r"|<form[^<>]{0,300}\baction=[\"'][^\"'>]{0,500}__cf_chl_"
    r"|\bsrc=[\"']https://(?:ct|geo)\.captcha-delivery\.com/"  # DataDome
    r"|<div[^<>]{0,100}\bid=[\"']px-captcha[\"']"  # HUMAN, once PerimeterX
    r"|<iframe[^<>]{0,300}\bsrc=[\"']/_Incapsula_Resource\?"  # Imperva
    r"|\bsrc=[\"']https://[^\"'\s>]{1,200}\.awswaf\.com/[^\"'\s>]{1,200}/captcha\.js",  # AWS WAF
    re.IGNORECASE,
)
_WIDGET = re.compile(
    r"<(?:div|form|iframe|button)[^<>]{0,300}\bclass=[\"'][^\"'>]{0,200}\b(?:g-recaptcha|h-captcha|cf-turnstile)\b"
    r"|<script[^<>]{0,300}\bsrc=[\"']https://(?:www\.google\.com/recaptcha|www\.recaptcha\.net/recaptcha"
    r"|(?:js\.)?hcaptcha\.com/1|challenges\.cloudflare\.com/turnstile)/"
    # reCAPTCHA v3 is invisible: a site key after `render=` is on ordinary pages.
    r"(?![^\"'<>]{0,200}\brender=(?!explicit|onload))",
    re.IGNORECASE,
)
# A form with other fields: its widget protects the form, not the page.
_ASKS_FOR_MORE = re.compile(
    r"<textarea\b|<select\b|<input(?![^<>]{0,300}\btype=[\"']?(?:hidden|submit|button|checkbox|image)\b)", re.IGNORECASE
)
_TITLE = re.compile(
    r"just a moment|one moment,? please|attention required!?|(?:ro)?bot (?:check|verification)|robot or human"
    r"|(?:human|security) (?:check|verification|checkpoint)|client challenge|(?:re)?captcha(?: (?:check|challenge))?"
    r"|pardon our interruption|ddos-guard|vercel security checkpoint"
    r"|(?:please )?(?:verify|confirm|prove) (?:that )?you(?:'re|’re| are) (?:a |not a )?(?:human|robot)(?: being)?"
    r"|verifying you are human|are you (?:a |not a )?(?:human|robot)"
    r"|checking (?:your browser|if the site connection is secure)\b.{0,60}",
    re.IGNORECASE,
)
_DENIED = re.compile(r"access (?:to this page has been )?denied|you have been blocked", re.IGNORECASE)
_BETWEEN = re.compile(r"\s+[|–—·:-]\s+|\s*\|\s*")


def challenged_by_headers(headers: Mapping[str, str]) -> bool:
    """Whether the headers alone show a challenge."""
    return (
        "challenge" in headers.get("cf-mitigated", "").lower()  # Cloudflare
        or headers.get("x-amzn-waf-action", "").strip().lower() in ("captcha", "challenge")  # AWS WAF
    )


def is_challenge(status: int, head: Head, html: str) -> bool:
    """Whether a page is a challenge. `html` is its beginning, at most `MOST_BYTES` of it."""
    if _ONLY_CHALLENGES.search(html):
        return True
    if status in REFUSALS:
        usual = _has_title(head, _TITLE)
    elif describes_itself(head):
        return False
    else:  # a refusal that calls itself 200
        usual = _has_title(head, _TITLE) or _has_title(head, _DENIED)
    return usual or (bool(_WIDGET.search(html)) and not _ASKS_FOR_MORE.search(html))


def describes_itself(head: Head) -> bool:
    """Whether a page has metadata for search engines: then it is an ordinary page, whatever its title."""
    return any((head.description, head.site_name, head.image_url, head.canonical_url))


def _has_title(head: Head, wanted: re.Pattern[str]) -> bool:
    """Whether the title, or a part of it beside the name of the site, is such a one."""
    title = head.title or ""
    return any(wanted.fullmatch(part.strip(" .…?!")) for part in (title, *_BETWEEN.split(title)))
