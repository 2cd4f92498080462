{{/* Labels of everything; the dictionary: root, part (scheduler, controllers or empty). */}}
{{- define "windlass.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: windlass
{{ include "windlass.selector" . }}
{{- end }}

{{/* Labels by which pods are found: they never change. */}}
{{- define "windlass.selector" -}}
app.kubernetes.io/name: windlass
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- if .part }}
app.kubernetes.io/component: {{ .part }}
{{- end }}
{{- end }}

{{/* The name of an object: the release's, and the part. A release named windlass gives windlass-scheduler. */}}
{{- define "windlass.name" -}}
{{- if .part }}{{ printf "%s-%s" (.root.Release.Name | trunc 40 | trimSuffix "-") .part }}{{ else }}{{ .root.Release.Name }}{{ end }}
{{- end }}

{{/* Cluster-wide names say the namespace where it is not the usual one, so that two releases do not meet. */}}
{{- define "windlass.clusterName" -}}
{{- if eq .root.Release.Namespace "windlass-system" }}{{ include "windlass.name" . }}{{ else }}{{ printf "%s:%s" .root.Release.Namespace (include "windlass.name" .) }}{{ end }}
{{- end }}

{{- define "windlass.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}{{ end }}
{{- end }}
{{- end }}

{{/* The pod of one part; the dictionary: root, part, command, values, args, config. */}}
{{- define "windlass.pod" -}}
serviceAccountName: {{ include "windlass.name" . }}
priorityClassName: {{ .root.Values.priorityClassName | quote }}
terminationGracePeriodSeconds: 15
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "windlass.selector" . | nindent 14 }}
containers:
  - name: {{ .part }}
    image: {{ include "windlass.image" .root }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
      - {{ .command }}
      - --leader-elect=true
      - --own-namespace=$(POD_NAMESPACE)
      - --metrics-bind=:{{ .root.Values.metrics.port }}
      - --settings=/etc/windlass-settings/settings.yaml
      {{- range .args }}
      - {{ . }}
      {{- end }}
    env:
      - name: POD_NAMESPACE
        valueFrom:
          fieldRef: {fieldPath: metadata.namespace}
      - name: POD_NAME
        valueFrom:
          fieldRef: {fieldPath: metadata.name}
      - name: POD_UID
        valueFrom:
          fieldRef: {fieldPath: metadata.uid}
      # Drivers and workers of AIGCJobs use the same image.
      - {name: WINDLASS_IMAGE, value: {{ include "windlass.image" .root | quote }}}
      {{- with .root.Values.traces.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    ports:
      - name: metrics
        containerPort: {{ .root.Values.metrics.port }}
      {{- if .guard.enabled }}
      - name: bind-guard
        containerPort: {{ .guard.port }}
      {{- end }}
      {{- if and .root.Values.progress.enabled (or (eq .part "controllers") .root.Values.oneProcess) }}
      - name: progress
        containerPort: {{ .root.Values.progress.port }}
      {{- end }}
    startupProbe:
      httpGet: {path: /healthz, port: metrics}
      periodSeconds: 2
      failureThreshold: 30
    livenessProbe:
      httpGet: {path: /healthz, port: metrics}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 5
      timeoutSeconds: 5
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources:
      {{- toYaml .values.resources | nindent 6 }}
    volumeMounts:
      - name: settings
        mountPath: /etc/windlass-settings
        readOnly: true
    {{- if .config }}
      - name: configuration
        mountPath: /etc/windlass
        readOnly: true
      {{- if .guard.enabled }}
      - name: bind-guard
        mountPath: /etc/windlass-bind-guard
        readOnly: true
      {{- end }}
    {{- end }}
volumes:
  - name: settings
    configMap:
      name: {{ include "windlass.name" (dict "root" .root "part" "settings") }}
{{- if .config }}
  - name: configuration
    configMap:
      name: {{ include "windlass.name" . }}
  {{- if .guard.enabled }}
  - name: bind-guard
    secret:
      secretName: {{ include "windlass.name" (dict "root" .root "part" "bind-guard") }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What the bind guard proves itself with: made once, and kept as long as the Secret is there. */}}
{{- define "windlass.guard" -}}
{{- $name := include "windlass.name" (dict "root" . "part" "bind-guard") }}
{{- if not (hasKey .Values.bindGuard "made") }}
{{- $found := lookup "v1" "Secret" .Release.Namespace $name }}
{{- $made := dict }}
{{- if and $found $found.data }}
{{- $made = pick $found.data "ca.crt" "tls.crt" "tls.key" "token" }}
{{- else }}
{{- $host := printf "%s.%s.svc" $name .Release.Namespace }}
{{- $ca := genCA "windlass-bind-guard" 3650 }}
{{- /* A server takes no capitals in the path of a webhook. */}}
{{- $pair := genSignedCert $host nil (list $host) 3650 $ca }}
{{- $made = dict "ca.crt" (b64enc $ca.Cert) "tls.crt" (b64enc $pair.Cert) "tls.key" (b64enc $pair.Key) "token" (randAlphaNum 40 | lower | b64enc) }}
{{- end }}
{{- $_ := set $made "mark" (get $made "tls.crt" | sha256sum) }}
{{- $_ := set .Values.bindGuard "made" $made }}
{{- end }}
{{- toYaml .Values.bindGuard.made }}
{{- end }}
