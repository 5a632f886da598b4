"""Metrics in the formats that Prometheus reads; the only module that imports prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from rowlock.signals.metrics import BOUNDS, METRICS, Metric, Sample, Samples, SecondsHistogram

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
LIMITS = [*map(floatToGoString, BOUNDS), "+Inf"]


class _Readings(Collector):
    """Hands one reading of all meters to a registry."""

    def __init__(self, readings: Sequence[Samples]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        for name, metric in METRICS.items():
            found = [sample for reading in self._readings for sample in reading.get(name, ())]
            if found:
                yield _family(metric, found)


def exposed(meters: Iterable[Callable[[], Samples]], accept: str) -> tuple[bytes, str]:
    """The metrics as text in the format that the Accept header asks for, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Readings([read() for read in meters]))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _family(metric: Metric, samples: list[Sample]) -> Family:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in samples:
            if isinstance(value, SecondsHistogram):
                counts = list(accumulate(value.counts.copy()))
                histogram.add_metric(labels, list(zip(LIMITS, counts, strict=True)), value.sum)
        return histogram
    plain = (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(
        metric.name, metric.help, labels=metric.labels
    )
    for labels, value in samples:
        plain.add_metric(labels, value)  # type: ignore[arg-type]  # a number, as the metric's kind says
    return plain
