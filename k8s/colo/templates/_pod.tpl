{{- /* What every pod of colo has: who it is, where the servers are, what it may not do. */ -}}
{{- /* Which user of NATS and Redis a pod is; "" where one user is for all. */ -}}
{{- define "colo.role" -}}
{{ if eq .name "streams" }}admin{{ else }}{{ .name }}{{ end }}
{{- end }}

{{- define "colo.hasKey" -}}
{{- $values := .root.Values -}}
{{- if and $values.credentials.prefix (not $values.nats.user) (not $values.nats.credsKey) }}yes{{ end }}
{{- end }}

{{- define "colo.hasStoreUser" -}}
{{- $values := .root.Values -}}
{{- if and $values.credentials.prefix (not $values.redis.passwordKey) (hasKey $values.services .name) }}yes{{ end }}
{{- end }}

{{- /* The servers that a pod reaches: agents and the streams' job have nothing to do with Redis. */ -}}
{{- define "colo.servers" -}}
nats{{ if hasKey .root.Values.services .name }} redis{{ end }}
{{- end }}

{{- /* A number as it was written: 1000000 is not 1e+06; a list as JSON. */ -}}
{{- define "colo.text" -}}
{{ if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else if kindIs "slice" . }}{{ toJson . }}{{ else }}{{ toString . }}{{ end }}
{{- end }}

{{- /* Settings that the chart gives a pod itself: what stands here would be said twice, or be another thing than its probes, policies and
mounts are made for. */ -}}
{{- define "colo.refuseOwned" -}}
{{- $owned := dict "http_host" "is the chart's own" "http_port" "is the chart's own, and its probes, services and policies name it" }}
{{- if eq .name "gateway" }}
{{- $owned = merge $owned (dict "tokens_file" "say it by tokens.existingSecret" "tls_cert" "say it by tls.existingSecret" "tls_key" "say it by tls.existingSecret") }}
{{- if include "colo.hasKey" . }}{{ $owned = merge $owned (dict "nats_audit_nkey_file" "is of the secret of credentials.prefix") }}{{ end }}
{{- if .root.Values.tls.clientCaKey }}{{ $owned = merge $owned (dict "tls_client_ca" "is said by tls.clientCaKey") }}{{ end }}
{{- else if not (hasKey .root.Values.services .name) }}
{{- $owned = merge $owned (dict "node" "is the name of the pod's node" "process_users" "say it by executor.jobUsers" "process_unmanaged" "say it by executor.unmanaged" "process_output_dir" "say it by executor.outputDir" "process_state_dir" "say it by executor.stateDir") }}
{{- end }}
{{- range $key, $rule := $owned }}
{{- if hasKey $.settings $key }}{{ fail (printf "%s.settings.%s: %s" $.place $key $rule) }}{{ end }}
{{- end }}
{{- end }}

{{- define "colo.isTls" -}}
{{- if and (eq .name "gateway") .root.Values.tls.existingSecret }}yes{{ end }}
{{- end }}

{{- define "colo.environment" -}}
{{- $values := .root.Values -}}
- {name: COLO_NATS_URL, value: {{ $values.nats.url | quote }}}
{{- if hasKey $values.services .name }}
- {name: COLO_REDIS_URL, value: {{ $values.redis.url | quote }}}
{{- end }}
- {name: COLO_STREAM_REPLICAS, value: {{ $values.nats.streamReplicas | quote }}}
- {name: COLO_STREAM_DISK_BYTES, value: {{ $values.nats.streamDiskBytes | int64 | quote }}}
{{- if include "colo.hasKey" . }}
- {name: COLO_NATS_NKEY_FILE, value: /etc/colo/credentials/nkey}
{{- if eq .name "gateway" }}
- {name: COLO_GATEWAY_NATS_AUDIT_NKEY_FILE, value: /etc/colo/credentials/auditor-nkey}
{{- end }}
{{- end }}
{{- if include "colo.hasStoreUser" . }}
- {name: COLO_REDIS_USER, value: {{ include "colo.role" . }}}
- {name: COLO_REDIS_PASSWORD_FILE, value: /etc/colo/credentials/redis-password}
{{- end }}
{{- range $server := include "colo.servers" . | splitList " " }}
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
{{- if include "colo.isTls" . }}
- {name: COLO_GATEWAY_TLS_CERT, value: /etc/colo/tls/{{ $values.tls.certKey }}}
- {name: COLO_GATEWAY_TLS_KEY, value: /etc/colo/tls/{{ $values.tls.keyKey }}}
{{- with $values.tls.clientCaKey }}
- {name: COLO_GATEWAY_TLS_CLIENT_CA, value: /etc/colo/tls/{{ . }}}
{{- end }}
{{- end }}
{{- if and (include "colo.isMutual" .) (not $values.services.gateway.settings.health_port) }}
- {name: COLO_GATEWAY_HEALTH_PORT, value: {{ include "colo.healthPort" . | quote }}}
{{- end }}
{{- /* Not by merge, which takes false and 0 for nothing. */ -}}
{{- $settings := dict }}
{{- if or (eq $name "collector") (eq $name "executor") }}
{{- $settings = deepCopy $values.nodes.settings }}
{{- include "colo.refuseOwned" (dict "root" .root "name" $name "settings" $settings "place" "nodes") }}
{{- end }}
{{- $place := hasKey $values.services $name | ternary (printf "services.%s" $name) $name }}
{{- include "colo.refuseOwned" (dict "root" .root "name" $name "settings" .own.settings "place" $place) }}
{{- range $key, $value := .own.settings }}{{ $_ := set $settings $key $value }}{{ end }}
{{- range $key, $value := $settings }}
- {name: COLO_{{ upper $name }}_{{ upper $key }}, value: {{ include "colo.text" $value | quote }}}
{{- end }}
{{- end }}

{{- define "colo.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if or (include "colo.hasKey" .) (include "colo.hasStoreUser" .) }}
{{- if or (eq .name "collector") (eq .name "executor") }}
- name: credentials
  mountPath: /etc/colo/credentials/nkey
  readOnly: true
  {{- if not .root.Values.credentials.nodeFolder }}
  subPathExpr: $(COLO_NODE).nkey
  {{- end }}
{{- else }}
- {name: credentials, mountPath: /etc/colo/credentials, readOnly: true}
{{- end }}
{{- end }}
{{- if and (eq .name "gateway") .root.Values.tokens.existingSecret }}
- {name: tokens, mountPath: /etc/colo/tokens, readOnly: true}
{{- end }}
{{- if include "colo.isTls" . }}
- {name: tls, mountPath: /etc/colo/tls, readOnly: true}
{{- end }}
{{- range $server := include "colo.servers" . | splitList " " }}
{{- if (index $.root.Values $server).existingSecret }}
- {name: {{ $server }}, mountPath: /etc/colo/{{ $server }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "colo.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 64Mi}}
{{- if or (include "colo.hasKey" .) (include "colo.hasStoreUser" .) }}
{{- if and .root.Values.credentials.nodeFolder (or (eq .name "collector") (eq .name "executor")) }}
- {name: credentials, hostPath: {path: {{ .root.Values.credentials.nodeFolder }}/{{ .name }}.nkey, type: File}}
{{- else }}
- {name: credentials, secret: {secretName: {{ .root.Values.credentials.prefix }}-{{ include "colo.role" . }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- if and (eq .name "gateway") .root.Values.tokens.existingSecret }}
- {name: tokens, secret: {secretName: {{ .root.Values.tokens.existingSecret }}, defaultMode: 0440}}
{{- end }}
{{- if include "colo.isTls" . }}
- {name: tls, secret: {secretName: {{ .root.Values.tls.existingSecret }}, defaultMode: 0440}}
{{- end }}
{{- range $server := include "colo.servers" . | splitList " " }}
{{- with (index $.root.Values $server).existingSecret }}
- {name: {{ $server }}, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- end }}

{{- /* Where pods of the control plane come from and run. */ -}}
{{- define "colo.placing" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.control.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.control.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.control.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "colo.probes" -}}
{{- $health := include "colo.healthPort" . }}
{{- $at := "http" }}{{ if $health }}{{ $at = "health" }}{{ else if include "colo.isTls" . }}{{ $at = "http, scheme: HTTPS" }}{{ end -}}
ports: [{name: http, containerPort: {{ include "colo.port" . }}}{{ if $health }}, {name: health, containerPort: {{ $health }}}{{ end }}]
# It loads what it owns before it is ready; a process that answers nothing is started again.
startupProbe: {httpGet: {path: /livez, port: {{ $at }}}, periodSeconds: 2, failureThreshold: 60}
livenessProbe: {httpGet: {path: /livez, port: {{ $at }}}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
readinessProbe: {httpGet: {path: /readyz, port: {{ $at }}}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 2}
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
