{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/*
A worker's name, in an environment variable: (island, variable). FULLNAME-ISLAND-NUMBER, however the pod is called: a pod of a StatefulSet has
that name, and the others know the number.
*/}}
{{- define "fairway.workerName" -}}
{{- $island := index . 0 -}}
{{- if eq $island.workload "statefulSet" -}}
- name: {{ index . 1 }}
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- else -}}
- name: WORKER_NUMBER
  valueFrom: {fieldRef: {fieldPath: "{{ ternary "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']" "metadata.annotations['batch.kubernetes.io/job-completion-index']" (eq $island.workload "leaderWorkerSet") }}"}}
- {name: {{ index . 1 }}, value: {{ $island.fullname }}-$(WORKER_NUMBER)}
{{- end -}}
{{- end -}}

{{/* The spec of a worker's pod: (root, island). */}}
{{- define "fairway.workerPod" -}}
{{- $root := index . 0 -}}
{{- $island := index . 1 -}}
{{- with $island -}}
{{ include "fairway.podSecurity" $root }}
{{- with include "fairway.placement" . }}
{{ trim . }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if eq .workload "jobSet" }}
restartPolicy: OnFailure
{{- end }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ int .terminationGracePeriodSeconds }}
initContainers:
  {{- include "fairway.certificates" (list $root "worker" "$(POD_NAME)" (include "fairway.workerName" (list . "POD_NAME"))) | nindent 2 }}
containers:
  - name: worker
    image: {{ .image | default (printf "%s:%s" $root.Values.images.worker ($root.Values.images.tag | default $root.Chart.AppVersion)) }}
    imagePullPolicy: {{ $root.Values.images.pullPolicy }}
    command: [/usr/bin/fairway-worker]
    # An image may name its plugin in its environment, which counts before the settings file and behind flags.
    args: [--config, /etc/fairway/worker.toml{{ with .plugin }}, --plugin, {{ . | quote }}{{ end }}]
    env:
      # The name in the worker's certificate.
      {{- include "fairway.workerName" (list . "FAIRWAY_NAME") | nindent 6 }}
      - name: FAIRWAY_ADVERTISE_HOST
        valueFrom: {fieldRef: {fieldPath: status.podIP}}
    ports:
      - {name: data, containerPort: 29004}
      - {name: health, containerPort: 29005}
    # Its executor has its devices, and the controller knows the worker. There is no liveness probe: the supervisor starts an executor again by itself.
    readinessProbe:
      httpGet: {path: /readyz, port: health, scheme: HTTPS}
      periodSeconds: 20
    resources: {{- include "fairway.workerResources" . | nindent 6 }}
    {{- include "fairway.containerSecurity" $root | nindent 4 }}
    volumeMounts:
      - {name: settings, mountPath: /etc/fairway, readOnly: true}
      # It renews its certificate here.
      - {name: tls, mountPath: /run/fairway/tls}
      - {name: data, mountPath: /var/lib/fairway}
      - {name: tmp, mountPath: /tmp}
volumes:
  - name: settings
    configMap: {name: {{ .fullname }}}
  - name: scripts
    configMap: {name: {{ include "fairway.fullname" $root }}-scripts}
  - name: tls
    emptyDir: {medium: Memory, sizeLimit: 1Mi}
  - name: data
    emptyDir: {}
  - name: tmp
    emptyDir: {}
  - name: secrets
    {{- if eq $root.Values.tls.mode "certManager" }}
    projected:
      sources:
        {{- range $i := until (int .workers) }}
        {{- $worker := printf "%s-%d" $island.fullname $i }}
        - secret:
            name: {{ include "fairway.islandSecretPrefix" $root }}{{ $island.name }}-{{ $i }}
            items:
              {{- if eq $i 0 }}
              - {key: ca.crt, path: ca.pem}
              {{- end }}
              - {key: tls.crt, path: {{ $worker }}.pem}
              - {key: tls.key, path: {{ $worker }}.key}
        {{- end }}
    {{- else }}
    secret:
      secretName: {{ include "fairway.islandSecretPrefix" $root }}{{ .name }}
    {{- end }}
{{- end -}}
{{- end -}}

{{/* Another one for each other pod or settings: what says whether a worker's pod is of now. Takes (root, island). */}}
{{- define "fairway.workerRevision" -}}
{{- printf "%s%s%s" (include "fairway.workerToml" .) (include "fairway.workerPod" .) (toJson (index . 1).podAnnotations) | sha256sum | trunc 16 -}}
{{- end -}}
