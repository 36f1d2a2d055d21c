"""`/metrics`: what the service counted, in Prometheus' text format.

Nothing is counted twice: the parts keep their own plain counters, and a scrape reads them. Label values come
from short lists that the code knows, never from requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.xtml import Decoder

if TYPE_CHECKING:
    from gateway.completion import Counts
    from gateway.service import Service


@dataclass(slots=True)
class Totals:
    """Sums over the completions of this process.

    tokens:   by kind: prompt, cached (part of prompt), completion, reasoning (part of completion)
    outcomes: requests by how they ended: finished, aborted (the client left), failed
    repairs:  deviations from the chat format by kind (docs/concepts/decoding.md)
    """

    tokens: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    repairs: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def counting(self, n_prompt: int, counts: Counts, decoders: Sequence[Decoder]) -> Iterator[None]:
        """Add one request when it ends, however it ends."""
        outcome = "finished"
        try:
            yield
        except (GeneratorExit, asyncio.CancelledError):
            outcome = "aborted"
            raise
        except BaseException:
            outcome = "failed"
            raise
        finally:
            self.outcomes[outcome] += 1
            self.tokens["prompt"] += n_prompt
            self.tokens["cached"] += counts.n_cached
            self.tokens["completion"] += counts.n_completion
            self.tokens["reasoning"] += counts.n_reasoning
            for decoder in decoders:
                self.repairs.update(decoder.repairs)


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
