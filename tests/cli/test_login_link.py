"""`rowlock login-link`: who it logs in, and where it leads."""

from cli.command import Inside
from support.each import each


@each(
    "words, scope, address",
    [
        ((), "operator", "http://127.0.0.1:8321/"),
        (("--read-only",), "operator:read", "http://127.0.0.1:8321/"),
        (
            ("--scope", "operator", "--url", "https://jobs.example/rowlock/"),
            "operator",
            "https://jobs.example/rowlock/",
        ),
        (("--owner", "ana"), "jobs", "http://127.0.0.1:8321/"),
    ],
)
def test_a_link_leads_to_the_api_and_logs_in_who_was_named(
    inside: Inside, words: tuple[str, ...], scope: str, address: str
) -> None:
    made = inside.json("login-link", *words)
    assert made["scope"] == scope
    assert made["link"].startswith(f"{address}#once=rowlock_")
    assert inside.out("login-link", *words).startswith(f"{address}#once=rowlock_")


@each(
    "words, message",
    [
        (("--scope", "all"), "--scope must be one of"),
        (("--scope", "jobs"), "needs an owner"),
        (("--owner", "ana", "--scope", "operator"), "takes no owner"),
        (("--owner", "ana", "--read-only"), "--read-only"),
        (("--owner", "a\nb"), "owner"),
        (("--url", "jobs.example"), "jobs.example"),
    ],
)
def test_a_link_that_makes_no_sense_is_refused(inside: Inside, words: tuple[str, ...], message: str) -> None:
    assert message in inside.error("login-link", *words, code=2)
