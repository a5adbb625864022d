{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "fairway.islandSelector" -}}
{{- $root := index . 0 -}}
{{ include "fairway.selector" $root }}
app.kubernetes.io/component: worker
fairway/island: {{ (index . 1).name }}
{{- end -}}

{{/* The labels of what an island has: (root, island). */}}
{{- define "fairway.islandLabels" -}}
{{ include "fairway.labels" (index . 0) }}
app.kubernetes.io/component: worker
fairway/island: {{ (index . 1).name }}
{{- end -}}

{{/* The labels and annotations of what keeps its pods. Kueue looks at the label there. */}}
{{- define "fairway.workloadMetadata" -}}
{{- $island := index . 1 -}}
labels: {{- include "fairway.islandLabels" . | nindent 2 }}
  {{- with $island.queue }}
  kueue.x-k8s.io/queue-name: {{ . }}
  {{- end }}
{{- with $island.workloadAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The pods, as all workloads have them. LWS and JobSets start anew when something changes here: they get no version of the chart. */}}
{{- define "fairway.workerTemplate" -}}
{{- $island := index . 1 -}}
{{- $labels := ternary "fairway.islandLabels" "fairway.islandSelector" (eq $island.workload "statefulSet") -}}
metadata:
  labels: {{- include $labels . | nindent 4 }}
    fairway/revision: {{ include "fairway.workerRevision" . | quote }}
  {{- with $island.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec: {{- include "fairway.workerPod" . | nindent 2 }}
{{- end -}}

{{/* A headless Service is a StatefulSet's; nobody asks for its names. */}}
{{- define "fairway.statefulSet" -}}
{{- $island := index . 1 -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $island.fullname }}
  {{- include "fairway.workloadMetadata" . | nindent 2 }}
spec:
  replicas: {{ int $island.workers }}
  serviceName: {{ $island.fullname }}
  podManagementPolicy: Parallel
  # An upgrade of the release does not restart all islands at once: who deletes pods does it, one island after the other (rollIslands).
  updateStrategy: {type: OnDelete}
  selector:
    matchLabels: {{- include "fairway.islandSelector" . | nindent 6 }}
  template: {{- include "fairway.workerTemplate" . | nindent 4 }}
{{- end -}}

{{/* One group: its leader is worker 0, and a worker as the others. LWS makes the group anew when its template changes. */}}
{{- define "fairway.leaderWorkerSet" -}}
{{- $island := index . 1 -}}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: {{ $island.fullname }}
  {{- include "fairway.workloadMetadata" . | nindent 2 }}
spec:
  replicas: 1
  startupPolicy: LeaderCreated
  leaderWorkerTemplate:
    size: {{ int $island.workers }}
    # A worker that comes back registers again by itself: the others go on.
    restartPolicy: None
    workerTemplate: {{- include "fairway.workerTemplate" . | nindent 6 }}
{{- end -}}

{{/* A JobSet cannot be changed: each revision is another one, and helm removes the one before. */}}
{{- define "fairway.jobSet" -}}
{{- $island := index . 1 -}}
{{- $spec := include "fairway.jobSetSpec" . -}}
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {{ $island.fullname }}-{{ sha256sum $spec | trunc 8 }}
  {{- include "fairway.workloadMetadata" . | nindent 2 }}
spec: {{- $spec | nindent 2 }}
{{- end -}}

{{- define "fairway.jobSetSpec" -}}
{{- $island := index . 1 -}}
network: {enableDNSHostnames: false}
replicatedJobs:
  - name: w
    replicas: 1
    template:
      spec:
        completionMode: Indexed
        completions: {{ int $island.workers }}
        parallelism: {{ int $island.workers }}
        # An island has no end: pods that fail are made anew, each once the one before has gone, since it has the same name in Fairway.
        backoffLimit: 2147483647
        podReplacementPolicy: Failed
        template: {{- include "fairway.workerTemplate" . | nindent 10 }}
{{- end -}}
