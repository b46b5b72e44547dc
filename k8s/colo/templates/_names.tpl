{{- define "colo.labels" -}}
app.kubernetes.io/name: colo
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "colo.selector" -}}
app.kubernetes.io/name: colo
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "colo.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "colo.full" -}}
{{ printf "%s-%s" .root.Release.Name .name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "colo.port" -}}
{{ if eq .name "gateway" }}8088{{ else }}9100{{ end }}
{{- end }}

{{- /* Whether nobody is let in without a certificate of his own; a probe has none. */ -}}
{{- define "colo.isMutual" -}}
{{- if and (include "colo.isTls" .) (or .root.Values.tls.clientCaKey .root.Values.services.gateway.settings.tls_client_ca) }}yes{{ end }}
{{- end }}

{{- /* The port of plain health pages and metrics, where there is one. */ -}}
{{- define "colo.healthPort" -}}
{{- $own := "" }}{{ if eq .name "gateway" }}{{ $own = .root.Values.services.gateway.settings.health_port }}{{ end }}
{{- if $own }}{{ int $own }}{{ else if include "colo.isMutual" . }}8089{{ end }}
{{- end }}

{{- /* The selector on one line, for a flow mapping. */ -}}
{{- define "colo.match" -}}
{{ include "colo.selector" . | fromYaml | toJson }}
{{- end }}

{{- /* The ports that addresses name, as a list: those of `url`, which may be several addresses, and `else` for one that names none. */ -}}
{{- define "colo.portsOf" -}}
{{- $ports := list -}}
{{- range $address := splitList "," .url }}
{{- $host := regexReplaceAll "^[^/]*//" $address "" | splitList "/" | first | splitList "@" | last }}
{{- $named := regexFind ":[0-9]+$" $host | trimPrefix ":" }}
{{- if $named }}{{ $ports = append $ports (int $named) }}
{{- else if hasPrefix "https:" $address }}{{ $ports = append $ports 443 }}
{{- else if hasPrefix "http:" $address }}{{ $ports = append $ports 80 }}
{{- else if $host }}{{ $ports = append $ports (int $.else) }}
{{- end }}
{{- end }}
{{- toJson $ports }}
{{- end }}

{{- /* The ports of other machines that a pod has to reach, beside that of DNS. */ -}}
{{- define "colo.egress" -}}
{{- $values := .root.Values -}}
{{- $ports := include "colo.portsOf" (dict "url" $values.nats.url "else" 4222) | fromJsonArray -}}
{{- if hasKey $values.services .name }}
{{- /* Sentinels name the primary, whose port is nowhere in the address. */ -}}
{{- $usual := contains "+sentinel:" $values.redis.url | ternary 26379 6379 }}
{{- $ports = concat $ports (include "colo.portsOf" (dict "url" $values.redis.url "else" $usual) | fromJsonArray) (list 6379) }}
{{- end }}
{{- with $values.otlpEndpoint }}
{{- $ports = concat $ports (include "colo.portsOf" (dict "url" . "else" 4318) | fromJsonArray) }}
{{- end }}
{{- if eq .name "gateway" }}
{{- with $values.services.gateway.settings.oidc_jwks }}
{{- if hasPrefix "https:" . }}
{{- $ports = concat $ports (include "colo.portsOf" (dict "url" . "else" 443) | fromJsonArray) }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .name "collector" }}
{{- range $address := regexFindAll "https?://[^,;]+" (toString $values.collector.settings.business_metrics) -1 }}
{{- $ports = concat $ports (include "colo.portsOf" (dict "url" $address "else" 80) | fromJsonArray) }}
{{- end }}
{{- end }}
{{- $unique := dict }}
{{- range $port := $ports }}{{ $_ := set $unique (printf "%05d" (int $port)) (int $port) }}{{ end }}
{{- $sorted := list }}
{{- range $key := keys $unique | sortAlpha }}{{ $sorted = append $sorted (get $unique $key) }}{{ end }}
{{- toJson $sorted }}
{{- end }}
