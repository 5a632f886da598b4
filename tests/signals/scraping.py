"""Words for the tests of metrics: scrape a port, read what it answered."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from rowlock.signals.metrics import METRICS


def get(port: int, path: str = "/metrics", host: str = "127.0.0.1") -> tuple[int, str]:
    """One request: status and text."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": f"{host}:{port}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


async def ask(port: int, path: str = "/metrics") -> tuple[int, str]:
    """One request, while the event loop turns."""
    return await asyncio.to_thread(get, port, path)


def names(text: str) -> set[str]:
    """The names of the metrics as they are declared; a parser takes `_total` off counters."""
    found = {family.name + ("_total" if family.type == "counter" else "") for family in families(text)}
    return {name for name in found if name.startswith("rowlock_")}


def families(text: str) -> Iterator:  # type: ignore[type-arg]
    """The metrics of an answer."""
    return text_string_to_metric_families(text)


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """The series of one sample name by the values of their labels, in the order of the list of metrics."""
    return {
        tuple(sample.labels[label] for label in METRICS[name.removesuffix("_count")].labels): sample.value
        for family in families(text)
        for sample in family.samples
        if sample.name == name
    }
