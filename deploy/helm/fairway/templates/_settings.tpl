{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "fairway.controllerToml" -}}
[controller]
bind = {{ .Values.bindAddress | quote }}
http-name = {{ include "fairway.httpNames" . }}
tls-ca = "/run/fairway/tls/ca.pem"
tls-certificate = "/run/fairway/tls/controller.pem"
tls-key = "/run/fairway/tls/controller.key"
{{- if eq (include "fairway.workersRenew" .) "true" }}
tls-ca-key = "/run/fairway/tls/ca.key"
{{- end }}
data-directory = "/var/lib/fairway/data"
{{- range $name, $value := .Values.controller.settings }}
{{ $name }} = {{ include "fairway.toml" $value }}
{{- end }}
{{- end -}}

{{/* Whether the controller has the CA's key. */}}
{{- define "fairway.workersRenew" -}}
{{- and .Values.tls.workersRenew (ne .Values.tls.mode "certManager") -}}
{{- end -}}

{{/* Takes (root, island). The name and the address of a worker come from the environment of its pod. */}}
{{- define "fairway.workerToml" -}}
{{- $root := index . 0 -}}
{{- $island := index . 1 -}}
[worker]
controller = "{{ include "fairway.controllerHost" $root }}:29002"
island = {{ $island.name | quote }}
island-workers = {{ $island.workers }}
runtime = {{ $island.runtime | quote }}
{{- if eq $island.runtime "pjrt" }}
plugin-kind = {{ ternary "cuda" "cpu" (gt (int $island.gpus) 0) | quote }}
{{- end }}
devices = {{ ternary (int $island.gpus) (int $island.devices) (gt (int $island.gpus) 0) }}
data-bind = "{{ ternary "[::]" $root.Values.bindAddress (eq $root.Values.bindAddress "::") }}:29004"
http-bind = "{{ ternary "[::]" $root.Values.bindAddress (eq $root.Values.bindAddress "::") }}:29005"
tls-ca = "/run/fairway/tls/ca.pem"
tls-certificate = "/run/fairway/tls/worker.pem"
tls-key = "/run/fairway/tls/worker.key"
{{- range $name, $value := $island.settings }}
{{ $name }} = {{ include "fairway.toml" $value }}
{{- end }}
{{- end -}}
