{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "fairway.notes" -}}
{{- $fullname := include "fairway.fullname" . }}
{{- $ns := .Release.Namespace }}
{{- $ca := ternary "ca\\.crt" "ca\\.pem" (eq .Values.tls.mode "certManager") -}}
Fairway {{ .Chart.AppVersion }}: a controller and {{ len .Values.islands }} island(s). Whatever restarts the controller (an upgrade, a drain, a crash) ends all sessions.

1. Wait until it serves:

   kubectl -n {{ $ns }} wait --for=condition=Ready pod/{{ $fullname }}-controller-0 --timeout=300s
{{- if include "fairway.tokenSecret" . }}
   helm -n {{ $ns }} test {{ .Release.Name }}
{{- end }}
{{- if eq .Values.tls.mode "existing" }}

   It needs the Secrets {{ include "fairway.controllerSecret" . }}, {{ include "fairway.adminSecret" . }} and one for each island (docs/kubernetes.md).
{{- else if eq .Values.tls.mode "certManager" }}

   It needs cert-manager, and the Secret {{ include "fairway.adminSecret" . }} (docs/kubernetes.md).
{{- end }}

2. Get the cluster's CA{{ if eq .Values.tls.mode "init" }} and the token of an admin{{ end }}, where `fairway` is installed:

   umask 077
   kubectl -n {{ $ns }} get secret {{ include "fairway.controllerSecret" . }} -o 'jsonpath={.data.{{ $ca }}}' | base64 -d >ca.pem
{{- if eq .Values.tls.mode "init" }}
   kubectl -n {{ $ns }} get secret {{ include "fairway.adminSecret" . }} -o 'jsonpath={.data.admin\.token}' | base64 -d >admin.token
{{- end }}
   kubectl -n {{ $ns }} port-forward service/{{ $fullname }}-controller 29000 &

3. Look at it, and make a token for users of the tenant red:

   fairway status --tls-ca ca.pem --token-file admin.token
   fairway token create --role user --tenant red --tls-ca ca.pem --token-file admin.token --to red.token

4. Run JAX{{ if not .Values.controller.clientService }} in the Kubernetes cluster{{ end }}:

   export FAIRWAY_CONTROLLER={{ include "fairway.controllerHost" . }}:29000 FAIRWAY_TLS_CA=$PWD/ca.pem FAIRWAY_TOKEN_FILE=$PWD/red.token
   JAX_PLATFORMS=fairway,cpu python train.py

An upgrade of the release restarts nothing by itself{{ if eq .Values.controller.updateStrategy "RollingUpdate" }} but the controller{{ end }}: delete pods, island by island, when it suits (docs/kubernetes.md).
{{- end -}}
