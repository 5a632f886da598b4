"""`rowlock tokens`: made once, listed without themselves, revoked by what people have of them."""

from cli.command import Inside
from support.each import each


def test_a_token_is_shown_once_and_listed_by_its_first_characters(inside: Inside) -> None:
    made = inside.json("tokens", "create", "--owner", "ana", "--scope", "jobs", "--expires", "30d")
    plain = inside.out("tokens", "create", "--owner", "bob")
    listed = inside.json("tokens", "list")
    assert [one["owner"] for one in listed] == ["bob", "ana"]
    assert made["token"].startswith(listed[1]["hint"])
    assert plain.startswith(listed[0]["hint"])
    assert made["token"] not in str(listed)
    assert listed[1]["expires_at"] is not None
    assert listed[0]["expires_at"] is None


@each("by", ["id", "hint", "token"])
def test_a_token_is_revoked_by_its_id_its_hint_or_itself(inside: Inside, by: str) -> None:
    made = inside.json("tokens", "create", "--owner", "ana")
    (listed,) = [one for one in inside.json("tokens", "list") if one["id"] == made["id"]]
    assert listed["revoked_at"] is None
    assert inside.json("tokens", "revoke", {**made, "hint": listed["hint"]}[by]) == {"revoked": [made["id"]]}
    (listed,) = [one for one in inside.json("tokens", "list") if one["id"] == made["id"]]
    assert listed["revoked_at"] is not None
    assert "no valid token" in inside.error("tokens", "revoke", made["id"], code=3)


@each(
    "words, message",
    [
        ((), "needs --owner"),
        (("--owner", "ana", "--scope", "all"), "--scope must be one of"),
        (("--owner", "ana", "--scope", "operator"), "takes no --owner"),
        (("--owner", "ana", "--expires", "soon"), "--expires"),
        (("--owner", "a\nb"), "--owner"),
    ],
)
def test_a_token_that_makes_no_sense_is_refused(inside: Inside, words: tuple[str, ...], message: str) -> None:
    assert message in inside.error("tokens", "create", *words, code=2)
    assert inside.json("tokens", "list") == []


def test_a_list_of_tokens_or_of_secrets_that_is_cut_says_so(inside: Inside) -> None:
    for owner in ("ana", "bob"):
        inside.out("tokens", "create", "--owner", owner)
        inside.out("webhooks", "secret", "rotate", "--owner", owner)
    for words in (["tokens", "list"], ["webhooks", "secret", "list"]):
        assert inside.run(*words, "--limit", "2").stderr == ""
        told = inside.run(*words, "--limit", "1")
        assert len(told.stdout.splitlines()) == 2
        assert told.stderr == "rowlock: only the first 1 are shown; --limit shows more\n"
