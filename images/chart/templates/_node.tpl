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
