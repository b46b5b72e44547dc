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

{{- /* The selector on one line, for a flow mapping. */ -}}
{{- define "colo.match" -}}
{{ include "colo.selector" . | fromYaml | toJson }}
{{- end }}
