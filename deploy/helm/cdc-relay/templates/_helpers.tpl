{{- define "cdc-relay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The name of all objects. 48 characters leave room for the endings of some. */}}
{{- define "cdc-relay.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- end }}

{{- define "cdc-relay.selector" -}}
app.kubernetes.io/name: {{ include "cdc-relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cdc-relay.labels" -}}
{{ include "cdc-relay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "cdc-relay.account" -}}
{{- default (ternary (include "cdc-relay.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "cdc-relay.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}

{{- /* The relay's configuration file. What is wrong here would be exit 2 in the pods. */}}
{{- define "cdc-relay.config" -}}
{{- $config := deepCopy .Values.config }}
{{- if not (or $config.source.url .Values.env .Values.envFrom) }}
{{- fail "config.source.url is missing: the address of PostgreSQL, such as postgres://relay@postgres:5432/shop?sslmode=verify-full" }}
{{- end }}
{{- if ne 1 (len (omit $config.sink "compat")) }}
{{- fail "config.sink must name one broker: rabbitmq or kafka" }}
{{- end }}
{{- if and .Values.console.enabled (hasPrefix "127.0.0.1:" $config.admin.listen) }}
{{- $_ := set $config.admin "listen" (printf "0.0.0.0:%s" (include "cdc-relay.apiPort" .)) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- define "cdc-relay.metricsPort" -}}
{{- $address := toString .Values.config.admin.metrics_listen }}
{{- if not (regexMatch ":[1-9][0-9]*$" $address) }}
{{- fail "config.admin.metrics_listen must be an address with a port, such as 0.0.0.0:8464: probes and Prometheus ask there" }}
{{- end }}
{{- regexFind "[0-9]+$" $address }}
{{- end }}

{{- define "cdc-relay.apiPort" -}}
{{- $address := toString .Values.config.admin.listen }}
{{- if not (regexMatch ":[1-9][0-9]*$" $address) }}
{{- fail "config.admin.listen must be an address with a port, such as 127.0.0.1:8465: the console is there" }}
{{- end }}
{{- regexFind "[0-9]+$" $address }}
{{- end }}

{{- /* delivery.shutdown_grace in seconds. */}}
{{- define "cdc-relay.grace" -}}
{{- $grace := toString .Values.config.delivery.shutdown_grace }}
{{- if not (regexMatch "^[0-9]+[sm]$" $grace) }}
{{- fail (printf "config.delivery.shutdown_grace is %s: write it in whole seconds or minutes, such as 20s or 2m" $grace) }}
{{- end }}
{{- regexFind "^[0-9]+" $grace | int | mul (ternary 60 1 (hasSuffix "m" $grace)) }}
{{- end }}

{{- /* Go's limit of memory: 80 % of the container's, in MiB. */}}
{{- define "cdc-relay.memoryLimit" -}}
{{- with ((.Values.resources).limits).memory }}
{{- $size := regexFind "^[0-9]+" . | int | mul (ternary 1024 1 (hasSuffix "Gi" .)) }}
{{- div (mul $size 80) 100 }}MiB
{{- end }}
{{- end }}

{{- /* The ports in config.source.url, of an address or of key=value, as JSON. */}}
{{- define "cdc-relay.postgresPorts" -}}
{{- $url := default "" .Values.config.source.url }}
{{- $ports := list }}
{{- if contains "://" $url }}
{{- range splitList "," (regexReplaceAll "^[a-z]+://([^/?]*@)?([^/?]*).*$" $url "${2}") }}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" .) | default "5432" | int) }}
{{- end }}
{{- else }}
{{- range splitList "," (regexFind "[0-9][0-9,]*" (regexFind "port *= *[0-9][0-9,]*" $url) | default "5432") }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- end }}
{{- uniq $ports | toJson }}
{{- end }}

{{- /* The ports of the broker in config.sink, as JSON. */}}
{{- define "cdc-relay.brokerPorts" -}}
{{- $ports := list }}
{{- if hasKey .Values.config.sink "rabbitmq" }}
{{- $urls := default "localhost:5672" (.Values.config.sink.rabbitmq).url }}
{{- range kindIs "slice" $urls | ternary $urls (list $urls) }}
{{- $host := regexReplaceAll "^[a-z]+://([^/?]*@)?([^/?]*).*$" . "${2}" }}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $host) | default (ternary "5671" "5672" (hasPrefix "amqps:" .)) | int) }}
{{- end }}
{{- else if hasKey .Values.config.sink "kafka" }}
{{- $brokers := default "localhost:9092" (.Values.config.sink.kafka).brokers }}
{{- range kindIs "slice" $brokers | ternary $brokers (splitList "," (toString $brokers)) }}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" (trim .)) | default "9092" | int) }}
{{- end }}
{{- end }}
{{- uniq $ports | toJson }}
{{- end }}

{{- /* What the pods of the relay, of init and of the test have in common. */}}
{{- define "cdc-relay.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # a Service named cdc-relay would put CDC_RELAY_... into the environment
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "cdc-relay.container" -}}
image: {{ include "cdc-relay.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
# The last line of the log says why it ended: kubectl describe pod shows it.
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "cdc-relay.env" -}}
- {name: CDC_RELAY_CONFIG, value: /etc/cdc-relay/cdc-relay.yaml}
{{- with include "cdc-relay.memoryLimit" . }}
- {name: GOMEMLIMIT, value: {{ . }}} # below the limit of memory
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cdc-relay.mounts" -}}
- {name: config, mountPath: /etc/cdc-relay, readOnly: true}
{{- if .Values.files }}
- {name: files, mountPath: /run/secrets/cdc-relay, readOnly: true}
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cdc-relay.volumes" -}}
{{- with .Values.files }}
- name: files
  projected:
    defaultMode: 0440 # the relay refuses files that everybody may read
    sources:
      {{- range . }}
      - {{ if .secret }}secret{{ else }}configMap{{ end }}:
          name: {{ default .configMap .secret }}
          {{- with .items }}
          items: {{ toYaml . | nindent 12 }}
          {{- end }}
          {{- if .optional }}
          optional: true
          {{- end }}
      {{- end }}
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cdc-relay.egress" -}}
- ports: # DNS
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- ports: # PostgreSQL
    {{- range include "cdc-relay.postgresPorts" . | fromJsonArray }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .Values.networkPolicy.postgres }}
  to: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- with include "cdc-relay.brokerPorts" . | fromJsonArray }}
- ports: # the broker
    {{- range . }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with $.Values.networkPolicy.broker }}
  to: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .Values.networkPolicy.egress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cdc-relay.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
