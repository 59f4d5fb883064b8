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

{{/* Kubernetes' recommended labels of an object. Pods have the label app instead: selectors never change, and another
version in a label would start the pods again. */}}
{{- define "labels" }}
{{- $c := (first .).Chart }}
{{- dict "app.kubernetes.io/name" "ovn-multinet" "app.kubernetes.io/instance" (first .).Release.Name "app.kubernetes.io/component" (last .) "app.kubernetes.io/part-of" "ovn-multinet" "app.kubernetes.io/version" $c.AppVersion "helm.sh/chart" (printf "%s-%s" $c.Name $c.Version | replace "+" "_") | toJson }}
{{- end }}

{{/* 25/32 of a container's memory limit, for Go's heap. */}}
{{- define "gomemlimit" }}
{{- $n := regexFind "^[0-9]+" . | atoi }}
{{- div (mul (ternary (mul $n 1024) $n (hasSuffix "Gi" .)) 25) 32 }}MiB
{{- end }}

{{/* `helm upgrade --reuse-values` takes the values of the older chart in place of those of this one. */}}
{{- define "values.complete" }}
{{- if not (and .Values.pods .Values.resources) }}
{{- fail "the values are those of an older version: upgrade with --reset-then-reuse-values, not with --reuse-values" }}
{{- end }}
{{- end }}
