{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "fairway.fullname" -}}
{{- include "fairway.complete" . -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride }}
{{- else if contains "fairway" .Release.Name -}}{{ .Release.Name }}
{{- else -}}{{ printf "%s-fairway" .Release.Name }}
{{- end -}}
{{- end -}}

{{- define "fairway.selector" -}}
app.kubernetes.io/name: fairway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fairway.labels" -}}
{{ include "fairway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The controller's name in the cluster; what workers and clients dial. */}}
{{- define "fairway.controllerHost" -}}
{{ include "fairway.fullname" . }}-controller.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* All names by which HTTP clients ask for it, as a JSON list. */}}
{{- define "fairway.httpNames" -}}
{{- $name := printf "%s-controller" (include "fairway.fullname" .) -}}
{{- $in := printf "%s.%s" $name .Release.Namespace -}}
{{- concat (list $name $in (printf "%s.svc" $in)) .Values.controller.hosts | toJson -}}
{{- end -}}

{{/* The islands with their defaults, as {"islands": [...]}. */}}
{{- define "fairway.islands" -}}
{{- $all := list -}}
{{- range .Values.islands -}}
{{- $island := mergeOverwrite (deepCopy $.Values.islandDefaults) (deepCopy .) -}}
{{- $_ := set $island "fullname" (printf "%s-%s" (include "fairway.fullname" $) .name) -}}
{{- $all = append $all $island -}}
{{- end -}}
{{- dict "islands" $all | toJson -}}
{{- end -}}

{{- define "fairway.controllerImage" -}}
{{ .Values.images.controller }}:{{ .Values.images.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "fairway.controllerSecret" -}}
{{ .Values.tls.controllerSecret | default (printf "%s-controller" (include "fairway.fullname" .)) }}
{{- end -}}

{{- define "fairway.adminSecret" -}}
{{ .Values.admin.secret | default (printf "%s-admin" (include "fairway.fullname" .)) }}
{{- end -}}

{{/* The start of the names of the islands' Secrets. */}}
{{- define "fairway.islandSecretPrefix" -}}
{{ .Values.tls.islandSecretPrefix | default (printf "%s-" (include "fairway.fullname" .)) }}
{{- end -}}

{{/* A value as TOML has it. */}}
{{- define "fairway.toml" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ toJson . }}{{- end -}}
{{- end -}}

{{- define "fairway.podSecurity" -}}
automountServiceAccountToken: false
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  # Not Always: that opens the data directory to the group, and the controller then refuses it.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "fairway.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where pods may run. Takes the values of the controller or of an island. */}}
{{- define "fairway.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/*
The sidecar that copies a daemon's certificate out of its Secrets, whose files Kubernetes opens to the group of the pod,
which daemons refuse; and again when it changes there. Takes (root, role, name of its files in the Secret, its environment).
*/}}
{{- define "fairway.certificates" -}}
{{- $root := index . 0 -}}
- name: certificates
  image: {{ $root.Values.images.tools }}
  imagePullPolicy: {{ $root.Values.images.pullPolicy }}
  restartPolicy: Always
  command: [sh, /scripts/certificates.sh, {{ index . 1 }}, {{ index . 2 | quote }}]
  {{- with index . 3 }}
  env: {{- . | nindent 4 }}
  {{- end }}
  startupProbe:
    exec: {command: [test, -f, /run/fairway/tls/{{ index . 1 }}.pem]}
    periodSeconds: 1
    failureThreshold: 60
  resources:
    requests: {cpu: 5m, memory: 16Mi}
    limits: {memory: 32Mi}
  {{- include "fairway.containerSecurity" $root | nindent 2 }}
  volumeMounts:
    - {name: scripts, mountPath: /scripts, readOnly: true}
    - {name: secrets, mountPath: /secrets, readOnly: true}
    - {name: tls, mountPath: /run/fairway/tls}
{{- end -}}

{{/* The resources of a worker of an island, with its GPUs. */}}
{{- define "fairway.workerResources" -}}
{{- $resources := deepCopy .resources -}}
{{- if gt (int .gpus) 0 -}}
{{- $_ := set $resources "limits" (merge (dict .gpuResource (int .gpus)) ($resources.limits | default dict)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/*
A step of the Job that makes certificates: (root, name, image, command). The last key is the list of its mounts, so more of them
may follow; an empty command is the image's own.
*/}}
{{- define "fairway.jobStep" -}}
{{- $root := index . 0 -}}
- name: {{ index . 1 }}
  image: {{ index . 2 }}
  imagePullPolicy: {{ $root.Values.images.pullPolicy }}
  {{- with index . 3 }}
  command: {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 256Mi}
  {{- include "fairway.containerSecurity" $root | nindent 2 }}
  volumeMounts:
    - {name: scratch, mountPath: /scratch}
{{- end -}}

{{/* What all certificates of daemons have: (root, issuer). */}}
{{- define "fairway.certificateSpec" -}}
{{- $root := index . 0 -}}
duration: {{ $root.Values.tls.certManager.duration }}
renewBefore: {{ $root.Values.tls.certManager.renewBefore }}
# What gRPC's TLS takes.
privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
usages: [digital signature, server auth, client auth]
issuerRef: {{- toYaml (index . 1) | nindent 2 }}
{{- end -}}

{{/* A selector of the pods of a component, in one line: (root, component). */}}
{{- define "fairway.component" -}}
{matchLabels: {app.kubernetes.io/name: fairway, app.kubernetes.io/instance: {{ (index . 0).Release.Name }}, app.kubernetes.io/component: {{ index . 1 }}}}
{{- end -}}

{{/* The Secret with a viewer's token, which the Job makes; empty: there is none. */}}
{{- define "fairway.tokenSecret" -}}
{{ .Values.monitoring.tokenSecret | default (ternary (printf "%s-viewer" (include "fairway.fullname" .)) "" (eq .Values.tls.mode "init")) }}
{{- end -}}

{{/* A step that is kubectl: (root, name, arguments). Its pod has fairway.apiVolume. */}}
{{- define "fairway.kubectlStep" -}}
{{- $root := index . 0 -}}
{{- include "fairway.jobStep" (list $root (index . 1) $root.Values.images.kubectl (list)) }}
    - {name: api, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  args: {{- toYaml (index . 2) | nindent 4 }}
  env:
    - {name: HOME, value: /scratch}
{{- end -}}

{{/* A step that gives the API server what is in a folder of /scratch: (root, folder). */}}
{{- define "fairway.applyStep" -}}
{{- $folder := index . 1 -}}
{{- include "fairway.kubectlStep" (list (index . 0) (printf "apply-%s" $folder) (list "apply" "--server-side" "--field-manager=fairway-certificates" "--force-conflicts" (printf "--filename=/scratch/%s" $folder))) -}}
{{- end -}}

{{/* The account of the API, for the steps that mount it alone. */}}
{{- define "fairway.apiVolume" -}}
- name: api
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end -}}

{{/* The metadata of what belongs to a Job that helm starts: (root, name, hooks, weight). */}}
{{- define "fairway.hookMetadata" -}}
name: {{ index . 1 }}
labels: {{- include "fairway.labels" (index . 0) | nindent 2 }}
annotations:
  helm.sh/hook: {{ index . 2 }}
  helm.sh/hook-weight: {{ index . 3 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The account of such a Job, while it runs: (root, name, hooks, rules). */}}
{{- define "fairway.hookAccount" -}}
{{- $metadata := include "fairway.hookMetadata" (list (index . 0) (index . 1) (index . 2) "-1") | nindent 2 -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{- $metadata }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{- $metadata }}
rules: {{- index . 3 | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{- $metadata }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ index . 1 }}}
subjects:
  - {kind: ServiceAccount, name: {{ index . 1 }}, namespace: {{ (index . 0).Release.Namespace }}}
{{- end -}}
