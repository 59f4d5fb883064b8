{{/* What the programs of OVN's pods know of their node. */}}
{{- define "ovn.env" }}
- {name: OVN_MULTINET_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: OVN_MULTINET_NODE_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
- {name: OVN_MULTINET_LOG_LEVEL, value: {{ .Values.logLevel }}}
{{- end }}

{{/* The container that keeps the certificate of a pod up to date. The other containers start when there is one. */}}
{{- define "ovn.certificates" }}
- name: certificates
  image: {{ include "image" (list $ "ovn") }}
  imagePullPolicy: {{ $.Values.images.pullPolicy }}
  args: [certificates, --role={{ .role }}, --signer-name={{ .Values.ovn.signerName }}, --certificate-life={{ .Values.ovn.certificateLife }}]
  restartPolicy: Always # a sidecar
  env: {{- include "ovn.env" . | nindent 2 }}
  startupProbe:
    exec: {command: [/ovn-multinet-ovn, ready, certificates]}
    periodSeconds: 1
    timeoutSeconds: 10
    failureThreshold: 600
  securityContext: {{- include "ovn.confined" (dict "add" list) | nindent 4 }}
  resources: {{ toJson .Values.resources.certificates }}
  volumeMounts:
  - {name: pki, mountPath: /etc/ovn-multinet/pki}
  - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{/*
The probes of a daemon: its name and the folder of its control socket. A daemon that hangs is not Ready, and an update of the
nodes does not go on. None is killed for that: a daemon that computes for long does not answer either. What ended it is its
last line.
*/}}
{{- define "ovn.ready" }}
startupProbe:
  exec: {command: [/ovn-multinet-ovn, ready, {{ first . }}, --run-dir={{ last . }}]}
  periodSeconds: 2
  timeoutSeconds: 10
  failureThreshold: 2147483647
readinessProbe:
  exec: {command: [/ovn-multinet-ovn, ready, {{ first . }}, --run-dir={{ last . }}]}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 2
terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{/* The uid of the host's root, because root owns the folders on the host; the capabilities are those in "add" alone. */}}
{{- define "ovn.confined" }}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]{{ if .add }}, add: [{{ join ", " .add }}]{{ end }}}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The volume that Kubernetes itself would mount into every container. */}}
{{- define "ovn.token" }}
- name: token
  projected:
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3607}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{/* The file on the node that ovn-controller logs denied packets to. Empty: nobody reads them. */}}
{{- define "ovn.controllerLog" }}
{{- .Values.ovn.controllerLog | default (ternary "/run/ovn/log/ovn-controller.log" "" .Values.ovn.enabled) }}
{{- end }}
