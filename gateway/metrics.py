"""`/metrics`: what the service counted, in Prometheus' text format.

Nothing is counted twice: the parts keep their own plain counters, and a scrape reads them. Label values come
from short lists that the code knows, never from requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.service import Service


def exposition(service: Service) -> bytes:
    """The text that a scraper reads."""
    registry = CollectorRegistry()
    registry.register(_Reader(service))
    return generate_latest(registry)


class _Reader(Collector):
    def __init__(self, service: Service) -> None:
        self.service = service

    def collect(self) -> Iterator[Metric]:
        service = self.service
        totals, prefixes = service.totals, service.renderer.prefixes
        yield _counter("k3_requests", "Chat requests by how they ended", "outcome", totals.outcomes)
        yield _counter("k3_tokens", "Tokens of prompts and completions", "kind", totals.tokens)
        yield _counter("k3_decoder_repairs", "Repaired deviations from the format", "kind", totals.repairs)
        yield _counter("k3_media", "Pictures and clips by how they were had", "result", self._media())
        yield _counter("k3_prefix_changes", "Where prompts left their prefix", "section", prefixes.changes)
        yield _counter("k3_prefix_lost_tokens", "Prefix tokens not found cached", "cause", prefixes.lost)
        running = GaugeMetricFamily("k3_requests_running", "Chat requests in progress")
        running.add_metric([], service.admission.running)
        yield running
        ready = GaugeMetricFamily("k3_ready", "Whether requests are answered")
        ready.add_metric([], float(service.status.phase == "ready"))
        yield ready

    def _media(self) -> Mapping[str, int]:
        return self.service.renderer.media.counts


def _counter(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family
