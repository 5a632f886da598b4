"""Renders the Helm chart without Helm: the part of the template language that it uses, and an error for the rest."""

import re
from pathlib import Path
from typing import Any

import yaml

ACTION = re.compile(r"(\n?[ \t]*)\{\{(-)?\s*(.*?)\s*(-)?\}\}")


class Chart:
    """A chart's templates with values and a release name."""

    def __init__(self, folder: Path, values: dict[str, Any], release: str = "demo") -> None:
        self.folder = folder
        about = yaml.safe_load((folder / "Chart.yaml").read_text())
        self.root = {
            "Values": values,
            "Release": {"Name": release, "Service": "Helm"},
            "Chart": {"AppVersion": about["appVersion"]},
        }
        self.defined: dict[str, list[str]] = {}
        self._render((folder / "templates" / "_helpers.tpl").read_text())

    def objects(self) -> list[dict[str, Any]]:
        """Every object of every template."""
        found = []
        for template in sorted((self.folder / "templates").glob("*.yaml")):
            found += [one for one in yaml.safe_load_all(self._render(template.read_text())) if one]
        return found

    def _render(self, text: str) -> str:
        return self._block(_tokens(text), {})[0]

    def _block(self, tokens: list[str], names: dict[str, Any]) -> tuple[str, str]:
        """Render up to the `end` or `else` that closes the block; returns the text and which of the two it was."""
        out = ""
        while tokens:
            token = tokens.pop(0)
            if not token.startswith("\0"):
                out += token
                continue
            verb, _, rest = token[1:].partition(" ")
            if verb in ("end", "else"):
                return out, verb
            if verb == "define":
                self.defined[rest.strip('"')] = _until_end(tokens)
            elif verb == "if":
                held = bool(self._value(rest, names))
                body, closed = self._block(tokens, names)
                other = self._block(tokens, names)[0] if closed == "else" else ""
                out += body if held else other
            elif verb == "range":
                key, value, over = re.fullmatch(r"\$(\w+), \$(\w+) := (.*)", rest).groups()  # type: ignore[union-attr]
                body = _until_end(tokens)
                for name, one in sorted((self._value(over, names) or {}).items()):
                    out += self._block([*body], {**names, key: name, value: one})[0]
            else:
                out += _text(self._value(token[1:], names))
        return out, ""

    def _value(self, text: str, names: dict[str, Any]) -> Any:
        first, *pipes = [part.strip() for part in text.split(" | ")]
        value = self._call(first, names)
        for pipe in pipes:
            verb, *args = pipe.split()
            if verb == "quote":
                value = '"' + _text(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
            elif verb == "nindent":
                pad = " " * int(args[0])
                value = "\n" + "\n".join(pad + line if line else line for line in value.split("\n"))
            elif verb == "default":
                value = value or self._call(args[0], names)
            else:
                raise ValueError(f"the renderer does not know {verb!r}")
        return value

    def _call(self, text: str, names: dict[str, Any]) -> Any:
        verb, *args = text.split()
        if verb == "include":
            return self._block([*self.defined[args[0].strip('"')]], {})[0].strip("\n")
        if verb == "toYaml":
            return yaml.safe_dump(self._call(args[0], names)).strip()
        if verb == "add":
            return sum(int(self._call(arg, names)) for arg in args)
        if verb == "not":
            return not self._call(args[0], names)
        if verb.startswith("$"):
            return names[verb[1:]]
        if verb.startswith("."):
            found: Any = self.root
            for part in verb[1:].split("."):
                found = found[part]
            return found
        return int(verb) if verb.isdigit() else verb.strip('"')


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tokens(text: str) -> list[str]:
    """Text and actions by turns; an action begins with a zero byte. `{{-` and `-}}` take white space beside them."""
    tokens, at = [], 0
    for match in ACTION.finditer(text):
        before = text[at : match.start()] + ("" if match[2] else match[1])
        tokens += [before.rstrip() if match[2] else before, f"\0{match[3]}"]
        at = match.end()
        if match[4]:
            at += len(text[at:]) - len(text[at:].lstrip())
    return [*tokens, text[at:]]


def _until_end(tokens: list[str]) -> list[str]:
    """Take the tokens of a block, with its `end`."""
    found, depth = [], 1
    while depth:
        token = tokens.pop(0)
        verb = token[1:].split(" ")[0] if token.startswith("\0") else ""
        depth += {"if": 1, "range": 1, "define": 1, "end": -1}.get(verb, 0)
        found.append(token)
    return found
