"""Exports spans to an OTLP/HTTP endpoint through the OpenTelemetry SDK, which is imported only when an endpoint is set."""

from typing import Any, Final

from colo_common.events.service import SpanData
from colo_common.model.invalid import InvalidInput

__all__ = ["OtlpExporter"]

# The library retries within this time; a process must not take longer to shut down.
_TIMEOUT_S: Final = 2


class OtlpExporter:
    """Exports finished spans. Raises InvalidInput when the exporter package is not installed or the address is bad."""

    def __init__(self, endpoint: str, service: str, version: str) -> None:
        if not endpoint.startswith(("http://", "https://")):
            raise InvalidInput("otlp_endpoint", "must begin with http:// or https://", endpoint)
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise InvalidInput("otlp_endpoint", "needs pip install 'colo[otlp]'", endpoint) from error
        url = endpoint if endpoint.rstrip("/").endswith("/v1/traces") else f"{endpoint.rstrip('/')}/v1/traces"
        self._exporter: Any = OTLPSpanExporter(endpoint=url, timeout=_TIMEOUT_S)
        self._resource = Resource.create({"service.name": f"colo-{service}", "service.version": version})

    def export(self, spans: list[SpanData]) -> None:
        """Send the spans. Raises OSError or RuntimeError when the endpoint does not take them."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        if self._exporter.export([self._readable(span) for span in spans]) is not SpanExportResult.SUCCESS:
            raise RuntimeError("the OTLP endpoint did not take the spans")

    def close(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()

    def _readable(self, span: SpanData) -> Any:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

        def context(span_id: str) -> SpanContext:
            return SpanContext(
                trace_id=int(span.trace_id, 16),
                span_id=int(span_id, 16),
                is_remote=False,
                trace_flags=TraceFlags(TraceFlags.SAMPLED),
            )

        return ReadableSpan(
            name=span.name,
            context=context(span.span_id),
            parent=context(span.parent_id) if span.parent_id else None,
            resource=self._resource,
            attributes={**span.attributes, "colo.service": span.service},
            start_time=span.start_us * 1000,
            end_time=span.end_us * 1000,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        )
