"""Exports spans to an OTLP/HTTP endpoint, in protobuf. The messages' package is imported only when an endpoint is set."""

import http.client
import os
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from colo_common.events.service import SpanData
from colo_common.model.invalid import InvalidInput

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["OtlpExporter"]

# A process must not take longer to shut down.
_TIMEOUT_S: Final = 2
#: Environment variables that every exporter of OpenTelemetry reads: headers of each request, and the CA of an endpoint with TLS.
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_CA_FILE: Final = ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE")


class OtlpExporter:
    """Exports finished spans. Raises InvalidInput when the package of the messages is not installed or the address is bad."""

    def __init__(self, endpoint: str, service: str, version: str) -> None:
        if not endpoint.startswith(("http://", "https://")):
            raise InvalidInput("otlp_endpoint", "must begin with http:// or https://", endpoint)
        try:
            from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
        except ImportError as error:
            raise InvalidInput("otlp_endpoint", "needs pip install 'colo[otlp]'", endpoint) from error
        self._request_type = trace_service_pb2.ExportTraceServiceRequest
        self._url = endpoint if endpoint.rstrip("/").endswith("/v1/traces") else f"{endpoint.rstrip('/')}/v1/traces"
        named = _pairs(os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
        self._resource = {**named, "service.name": f"colo-{service}", "service.version": version}
        self._headers = {**_pairs(_first_set(_HEADERS)), "Content-Type": "application/x-protobuf"}
        try:
            self._tls = ssl.create_default_context(cafile=_first_set(_CA_FILE) or None) if endpoint[4] == "s" else None
        except OSError as error:
            raise InvalidInput(
                _CA_FILE[1], "must name a readable file of certificates", _first_set(_CA_FILE)
            ) from error

    def export(self, spans: list[SpanData]) -> None:
        """Send the spans. Raises OSError or RuntimeError when the endpoint does not take them."""
        body = self._message(spans).SerializeToString()
        request = urllib.request.Request(self._url, body, self._headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls):
                pass
        except urllib.error.HTTPError as error:
            error.close()
            raise RuntimeError(f"the OTLP endpoint did not take the spans: {error.code} {error.reason}") from error
        except (http.client.HTTPException, ValueError) as error:
            raise RuntimeError(f"the OTLP endpoint gave no answer of HTTP: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Nothing stays open between two exports."""

    def _message(self, spans: list[SpanData]) -> "ExportTraceServiceRequest":
        message = self._request_type()
        found = message.resource_spans.add()
        for key, value in self._resource.items():
            found.resource.attributes.add(key=key).value.string_value = value
        scope = found.scope_spans.add()
        for span in spans:
            row = scope.spans.add(
                trace_id=bytes.fromhex(span.trace_id),
                span_id=bytes.fromhex(span.span_id),
                parent_span_id=bytes.fromhex(span.parent_id),
                name=span.name,
                kind="SPAN_KIND_INTERNAL",
                # The lowest bit of the trace flags: sampled.
                flags=1,
                start_time_unix_nano=span.start_us * 1_000,
                end_time_unix_nano=span.end_us * 1_000,
            )
            for key, value in {**span.attributes, "colo.service": span.service}.items():
                row.attributes.add(key=key).value.string_value = value
            if span.error:
                row.status.code = row.status.STATUS_CODE_ERROR
                row.status.message = span.error
        return message


def _first_set(names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := os.environ.get(name, ""))), "")


def _pairs(text: str) -> dict[str, str]:
    """The pairs of `name=value,name=value`, with values in percent encoding; what is no pair is left out."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): unquote(value.strip()) for name, equals, value in pairs if equals and name.strip()}
