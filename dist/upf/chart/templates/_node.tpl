{{/* One daemon has the pins and the ports of a node: pods of another release keep away from it, in any
namespace. So does the job that detaches the data path, which is for the node that its release has left. */}}
{{- define "culvert.alone" -}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - labelSelector: {matchLabels: {app.kubernetes.io/name: culvert-upf}}
      namespaceSelector: {}
      topologyKey: kubernetes.io/hostname
{{- end }}

{{/* Where Culvert connects the node's pods, the pins and the state are that daemon's, also while it starts
again. This release does not start there, says why in the pod's events, and detaches nothing. */}}
{{- define "culvert.absent" -}}
name: no-pods
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
command: [/usr/bin/culvert, cni, absent, --bin-dir=/host/cni/bin, --conf-dir=/host/cni/net.d]
securityContext:
  capabilities: {drop: [ALL]}
  readOnlyRootFilesystem: true
volumeMounts:
  {{- include "culvert.absent.mounts" . | nindent 2 }}
{{- end }}

{{- define "culvert.absent.mounts" -}}
- {name: cni-bin, mountPath: /host/cni/bin, readOnly: true}
- {name: cni-conf, mountPath: /host/cni/net.d, readOnly: true}
{{- end }}

{{- define "culvert.absent.volumes" -}}
- {name: cni-bin, hostPath: {path: {{ .Values.cni.binDir }}}}
- {name: cni-conf, hostPath: {path: {{ .Values.cni.confDir }}}}
{{- end }}

{{/* Where the kubelet asks for the daemon's health: at metrics.listen, by the node's network. */}}
{{- define "culvert.health" -}}
{{- $listen := dig "metrics" "listen" "127.0.0.1:9418" .Values.config -}}
{{- if ne $listen "off" -}}
{{- $host := regexReplaceAll ":[0-9]+$" $listen "" | trimAll "[]" -}}
livenessProbe:
  httpGet: {path: /healthz, host: {{ has $host (list "" "0.0.0.0" "::") | ternary "127.0.0.1" $host | quote }}, port: {{ regexFind "[0-9]+$" $listen }}}
  initialDelaySeconds: 60
  periodSeconds: 20
  timeoutSeconds: 15
{{- end }}
{{- end }}
