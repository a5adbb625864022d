{{/*
SPDX-License-Identifier: Apache-2.0
What values.schema.json cannot say. Each message names the path, what is wrong and what to do.
*/}}
{{/* Values that came after version 0.1 of the chart: `--reuse-values` keeps the defaults of the release before, which has none of them. */}}
{{- define "fairway.complete" -}}
{{- $values := .Values -}}
{{- range list "rollDrain.limitSeconds" "rollDrain.atLimit" "monitoring.runbooks" "islandDefaults.workload" "islandDefaults.workloadAnnotations" "islandDefaults.queue" -}}
{{- $steps := splitList "." . -}}
{{- if not (hasKey (index $values (first $steps) | default dict) (last $steps)) -}}
{{- fail (printf "%s: it is missing; these are the values of an older chart, as --reuse-values keeps them: say --reset-then-reuse-values instead, or give your own values by -f" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fairway.check" -}}
{{- $fullname := include "fairway.fullname" . -}}
{{- $seen := dict "controller" true "admin" true "viewer" true "ca" true "scripts" true "clients" true "dashboard" true -}}
{{- if gt (len $fullname) 30 -}}
{{- fail (printf "fullnameOverride: the names of this release would begin with %q, which has %d characters; give at most 30 here" $fullname (len $fullname)) -}}
{{- end -}}
{{- $workloads := list -}}
{{- $islands := (include "fairway.islands" . | fromJson).islands -}}
{{- $names := dict -}}
{{- range $islands -}}
{{- $_ := set $names .name true -}}
{{- end -}}
{{- range $i, $island := $islands -}}
{{- $at := printf "islands[%d]" $i -}}
{{- if hasKey $seen $island.name -}}
{{- fail (printf "%s.name: %q is taken by another island or by the chart; give another name" $at $island.name) -}}
{{- end -}}
{{- $_ := set $seen $island.name true -}}
{{- $workloads = append $workloads $island.workload -}}
{{- $longest := ternary 40 50 (eq $island.workload "jobSet") -}}
{{- if gt (len $island.fullname) $longest -}}
{{- fail (printf "%s.name: the name of its %s would begin with %q, which has %d characters, and %d are allowed; shorten it" $at (title $island.workload) $island.fullname (len $island.fullname) $longest) -}}
{{- end -}}
{{- if and (eq $island.workload "jobSet") (hasKey (index $.Values.islands $i) "maxUnavailable") -}}
{{- fail (printf "%s.maxUnavailable: a JobSet's pods have no PodDisruptionBudget, which would let none of them go; leave it out, or take another workload" $at) -}}
{{- end -}}
{{- if and (eq $island.workload "jobSet") $island.queue -}}
{{- fail (printf "%s.queue: workers of a JobSet that Kueue preempts end with 0, which Jobs take for done, so the island would come back without them; set queue to \"\", or take another workload" $at) -}}
{{- end -}}
{{- if and (eq $island.workload "leaderWorkerSet") (hasKey $names (printf "%s-0" $island.name)) -}}
{{- fail (printf "%s.name: LWS makes a StatefulSet %s-0 for the workers of this island, and there is an island %s-0 with objects of that name; rename one of them" $at $island.fullname $island.name) -}}
{{- end -}}
{{- if and (gt (int $island.gpus) 0) (ne $island.runtime "pjrt") -}}
{{- fail (printf "%s.gpus: %d GPUs are of no use to runtime %s; say runtime pjrt with a plugin, or no GPUs" $at (int $island.gpus) $island.runtime) -}}
{{- end -}}
{{- if and (gt (int $island.gpus) 0) (not $island.plugin) -}}
{{- fail (printf "%s.plugin: GPUs need the path of a PJRT plugin of kind cuda in the island's image; give it, and the image" $at) -}}
{{- end -}}
{{- if and (eq $island.runtime "pjrt") (eq (int $island.gpus) 0) (gt (int $island.workers) 1) -}}
{{- fail (printf "%s.workers: it is %d, and an island of the pjrt runtime on CPUs is one worker; give it more devices, make several islands, or say runtime host" $at (int $island.workers)) -}}
{{- end -}}
{{- range $setting := list "gpu-fraction" "tune-on-gpu" "allow-raw-kernels" "target-config" -}}
{{- if and (hasKey $island.settings $setting) (eq (int $island.gpus) 0) -}}
{{- fail (printf "%s.settings.%s: it is for islands with GPUs, and this one has none; give it gpus, or leave the setting out" $at $setting) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $island.runtime "pjrt") $island.plugin -}}
{{- fail (printf "%s.runtime: it is %s, which takes no plugin, and a plugin is given; say pjrt, or leave the plugin out" $at $island.runtime) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.rollIslands (not (has "statefulSet" $workloads)) -}}
{{- fail "rollIslands: no island is a StatefulSet, and a LeaderWorkerSet or a JobSet starts anew by itself when an upgrade changes it; turn rollIslands off" -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor (not (include "fairway.tokenSecret" .)) -}}
{{- fail "monitoring.tokenSecret: a ServiceMonitor needs a viewer's token to read metrics; make one (`fairway token create --role viewer`) and name its Secret, or turn monitoring.serviceMonitor off" -}}
{{- end -}}
{{- end -}}
