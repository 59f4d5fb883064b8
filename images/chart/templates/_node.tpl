{{/* What depends on the distribution: its preset, or the values that override it. */}}
{{- define "node" }}
{{- $preset := get (.Files.Get "distributions.yaml" | fromYaml) .Values.distribution }}
confDir: {{ .Values.cni.confDir | default $preset.confDir }}
binDir: {{ .Values.cni.binDir | default $preset.binDir }}
podResources: {{ .Values.kubelet.rootDir | default $preset.kubeletDir }}/pod-resources
keepOnPrimary: {{ join "," (.Values.agent.keepOnPrimary | default $preset.keepOnPrimary) }}
{{- end }}

{{/* Where the controllers and the uninstall run: on the nodes that controller.nodes selects, and there rather on control
planes, because root of their node can read their tokens. */}}
{{- define "controller.nodes" }}
nodeAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    preference: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]}
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    - matchExpressions:
      - {key: ovn-multinet.node-restriction.kubernetes.io/distrusted, operator: DoesNotExist}
      {{- with .Values.controller.nodes }}
      {{- range splitList "," . }}
      {{- $no := contains "!" . }}
      {{- $pair := . | nospace | replace "!" "" | replace "==" "=" | splitList "=" }}
      {{- if eq (len $pair) 2 }}
      - {key: {{ first $pair }}, operator: {{ ternary "NotIn" "In" $no }}, values: [{{ last $pair | quote }}]}
      {{- else }}
      - {key: {{ first $pair }}, operator: {{ ternary "DoesNotExist" "Exists" $no }}}
      {{- end }}
      {{- end }}
      {{- end }}
{{- end }}

{{/* The name of an image: what it is called in the values, and there in place of the registry the one for all images. */}}
{{- define "image" }}
{{- $image := get (first .).Values.images (last .) }}
{{- with (first .).Values.images.registry }}{{ trimSuffix "/" . }}/{{ regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $image "" }}{{ else }}{{ $image }}{{ end }}
{{- end }}

{{/* Kubernetes' recommended labels of an object, of its component, and further labels that the object has: (list $ COMPONENT
FURTHER). No selector has a recommended label: a selector never changes. */}}
{{- define "labels" }}
{{- $c := (first .).Chart }}
{{- $further := dict }}
{{- if gt (len .) 2 }}{{ $further = last . }}{{ end }}
{{- $release := dict "app.kubernetes.io/managed-by" (first .).Release.Service "app.kubernetes.io/version" ($c.AppVersion | replace "+" "_") "helm.sh/chart" (printf "%s-%s" $c.Name $c.Version | replace "+" "_") }}
{{- merge (deepCopy $further) $release (include "labels.stable" . | fromJson) | toJson }}
{{- end }}

{{/* Those of the labels that are the same in each version of the chart. */}}
{{- define "labels.stable" }}
{{- dict "app.kubernetes.io/name" "ovn-multinet" "app.kubernetes.io/instance" (first .).Release.Name "app.kubernetes.io/component" (index . 1) "app.kubernetes.io/part-of" "ovn-multinet" | toJson }}
{{- end }}

{{/* The labels of the pods of a component: the label app, by which selectors find them, those of pods.labels, and the
recommended ones that stay the same: another version in a pod's label would start the pods again. The pods of OVN's
databases and of Open vSwitch do not have these labels: a template that changes restarts the databases, and interrupts the
traffic of the node. */}}
{{- define "labels.pod" }}
{{- merge (dict "app" (printf "ovn-multinet-%s" (last .))) (first .).Values.pods.labels (include "labels.stable" . | fromJson) | toJson }}
{{- end }}

{{/* What the pods read at their start. The labels of the ConfigMap are no part of it: they have the chart's version. */}}
{{- define "config.checksum" }}
{{- (include (print $.Template.BasePath "/20-config.yaml") . | fromYaml).data | toJson | sha256sum }}
{{- end }}

{{/* Which nodes have an agent, and beside it the program that changes running pods. With other tolerations than those of all
taints the agent still tolerates the startup taint: the taint stays until the agent is ready. */}}
{{- define "agent.nodes" }}
nodeSelector: {{ merge (dict "kubernetes.io/os" "linux") .Values.agent.nodeSelector | toJson }}
{{- $tolerations := .Values.agent.tolerations }}
{{- $all := false }}
{{- range $tolerations }}{{ if and (eq .operator "Exists") (not (or .key .effect)) }}{{ $all = true }}{{ end }}{{ end }}
{{- if not $all }}
{{- $tolerations = append $tolerations (dict "key" "ovn-multinet/not-ready" "operator" "Exists") }}
{{- end }}
tolerations: {{ toJson $tolerations }}
{{- end }}

{{/* 25/32 of a container's memory limit, for Go's heap. */}}
{{- define "gomemlimit" }}
{{- $n := regexFind "^[0-9]+" . | atoi }}
{{- div (mul (ternary (mul $n 1024) $n (hasSuffix "Gi" .)) 25) 32 }}MiB
{{- end }}

{{/* `helm upgrade --reuse-values` takes the values of the older chart in place of those of this one. */}}
{{- define "values.complete" }}
{{- if not (and .Values.pods .Values.resources .Values.attach .Values.monitoring) }}
{{- fail "the values are those of an older version: upgrade with --reset-then-reuse-values, not with --reuse-values" }}
{{- end }}
{{- end }}
