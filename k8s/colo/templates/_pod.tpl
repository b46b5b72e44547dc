{{- /* What every pod of colo has: who it is, where the servers are, what it may not do. */ -}}
{{- define "colo.environment" -}}
{{- $values := .root.Values -}}
- {name: COLO_NATS_URL, value: {{ $values.nats.url | quote }}}
- {name: COLO_REDIS_URL, value: {{ $values.redis.url | quote }}}
- {name: COLO_STREAM_REPLICAS, value: {{ $values.nats.streamReplicas | quote }}}
{{- range $server := list "nats" "redis" }}
{{- $own := index $values $server }}
{{- with $own.user }}
- {name: COLO_{{ upper $server }}_USER, value: {{ . | quote }}}
{{- end }}
{{- if $own.existingSecret }}
{{- range $key, $setting := dict "passwordKey" "PASSWORD_FILE" "credsKey" "CREDS_FILE" "caKey" "CA_FILE" "certKey" "CERT_FILE" "keyKey" "KEY_FILE" }}
{{- with index $own $key }}
- {name: COLO_{{ upper $server }}_{{ $setting }}, value: /etc/colo/{{ $server }}/{{ . }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
- {name: COLO_HTTP_HOST, value: "0.0.0.0"}
- {name: COLO_HTTP_PORT, value: {{ include "colo.port" . | quote }}}
- {name: COLO_LOG_LEVEL, value: {{ $values.logLevel | quote }}}
{{- with $values.otlpEndpoint }}
- {name: COLO_OTLP_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- $name := .name }}
{{- if and (eq $name "gateway") $values.tokens.existingSecret }}
- {name: COLO_GATEWAY_TOKENS_FILE, value: /etc/colo/tokens/{{ $values.tokens.key }}}
{{- end }}
{{- range $key, $value := .own.settings }}
- {name: COLO_{{ upper $name }}_{{ upper $key }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{- define "colo.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if and (eq .name "gateway") .root.Values.tokens.existingSecret }}
- {name: tokens, mountPath: /etc/colo/tokens, readOnly: true}
{{- end }}
{{- range $server := list "nats" "redis" }}
{{- if (index $.root.Values $server).existingSecret }}
- {name: {{ $server }}, mountPath: /etc/colo/{{ $server }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "colo.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 64Mi}}
{{- if and (eq .name "gateway") .root.Values.tokens.existingSecret }}
- {name: tokens, secret: {secretName: {{ .root.Values.tokens.existingSecret }}, defaultMode: 0440}}
{{- end }}
{{- range $server := list "nats" "redis" }}
{{- with (index $.root.Values $server).existingSecret }}
- {name: {{ $server }}, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- end }}

{{- define "colo.probes" -}}
ports: [{name: http, containerPort: {{ include "colo.port" . }}}]
# It loads what it owns before it is ready; a process that answers nothing is started again.
startupProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 2, failureThreshold: 60}
livenessProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 2}
{{- end }}

{{- define "colo.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
