"""`rowlock webhooks secret`: shown once, listed without themselves, at most two of an owner at any time."""

from cli.command import Inside
from support.each import each


def test_a_secret_is_shown_once_and_listed_by_its_first_characters(inside: Inside) -> None:
    made = inside.json("webhooks", "secret", "rotate", "--owner", "ana")
    plain = inside.out("webhooks", "secret", "rotate", "--owner", "bob").strip()
    ana, bob = inside.json("webhooks", "secret", "list")
    assert (ana["owner"], bob["owner"]) == ("ana", "bob")
    assert made["secret"].startswith("whsec_")
    assert made["secret"].startswith(ana["hint"])
    assert plain.startswith(bob["hint"])
    assert made["secret"] not in str((ana, bob))
    assert len(made["secret"]) - len(ana["hint"]) > 30


def test_the_secret_before_signs_until_the_overlap_is_over(inside: Inside) -> None:
    made = [inside.json("webhooks", "secret", "rotate", "--owner", "ana")["id"] for _ in range(3)]
    listed = inside.json("webhooks", "secret", "list")
    assert [one["id"] for one in listed] == [made[2], made[1]]
    assert [one["expires_at"] is None for one in listed] == [True, False]
    last = inside.json("webhooks", "secret", "rotate", "--owner", "ana", "--overlap", "0")
    assert [one["id"] for one in inside.json("webhooks", "secret", "list")] == [last["id"]]


@each(
    "words, message",
    [((), "--owner"), (("--owner", "a\nb"), "--owner"), (("--owner", "a", "--overlap", "x"), "--overlap 'x'")],
)
def test_a_rotation_that_makes_no_sense_is_refused(inside: Inside, words: tuple[str, ...], message: str) -> None:
    assert message in inside.error("webhooks", "secret", "rotate", *words, code=2)
    assert inside.json("webhooks", "secret", "list") == []
