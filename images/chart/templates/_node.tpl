{{/* What depends on the distribution: its preset, or the values that override it. */}}
{{- define "node" }}
{{- $preset := get (.Files.Get "distributions.yaml" | fromYaml) .Values.distribution }}
confDir: {{ .Values.cni.confDir | default $preset.confDir }}
binDir: {{ .Values.cni.binDir | default $preset.binDir }}
podResources: {{ .Values.kubelet.rootDir | default $preset.kubeletDir }}/pod-resources
keepOnPrimary: {{ join "," (.Values.agent.keepOnPrimary | default $preset.keepOnPrimary) }}
{{- end }}
