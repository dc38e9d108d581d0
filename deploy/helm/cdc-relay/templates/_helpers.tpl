{{- define "cdc-relay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The name of all objects. 48 characters leave room for the endings of some. */}}
{{- define "cdc-relay.fullname" -}}
{{- $name := default .Release.Name .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $name) }}
{{- fail (printf "%s cannot name a Service: set fullnameOverride, of a-z, 0-9 and -, beginning with a-z" $name) }}
{{- end }}
{{- $name }}
{{- end }}

{{- define "cdc-relay.selector" -}}
app.kubernetes.io/name: {{ include "cdc-relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cdc-relay.labels" -}}
{{ include "cdc-relay.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Without the chart's version: another chart with the same image is no rollout. */}}
{{- define "cdc-relay.podLabels" -}}
{{ include "cdc-relay.selector" . }}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.tag | trunc 63 | trimAll "._-" | quote }}
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
{{- $elsewhere := .Values.envFrom }}
{{- range .Values.env }}
{{- $elsewhere = or $elsewhere (regexMatch "^(CDC_RELAY_SOURCE__URL|PGHOST|PGHOSTADDR|PGSERVICE)$" .name) }}
{{- end }}
{{- if not (or $config.source.url $elsewhere) }}
{{- fail "config.source.url is missing: the address of PostgreSQL, such as postgres://relay@postgres:5432/shop?sslmode=verify-full" }}
{{- end }}
{{- if ne 1 (len (omit $config.sink "compat" "cloudevents")) }}
{{- fail "config.sink must name one broker: rabbitmq or kafka" }}
{{- end }}
{{- include "cdc-relay.noSecrets" . }}
{{- if and .Values.console.enabled (include "cdc-relay.isLoopback" $config.admin.listen) }}
{{- $_ := set $config.admin "listen" (printf "%s:%s" (ternary "[::]" "0.0.0.0" (hasPrefix "[" $config.admin.listen)) (include "cdc-relay.apiPort" .)) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* Secrets would stand in a ConfigMap, in the arguments of a Job, and in the release. */}}
{{- define "cdc-relay.noSecrets" -}}
{{- $config := .Values.config }}
{{- $rabbitmq := default dict $config.sink.rabbitmq }}
{{- $sasl := default dict (default dict $config.sink.kafka).sasl }}
{{- $secrets := dict "source.password" $config.source.password "sink.rabbitmq.password" $rabbitmq.password
  "sink.rabbitmq.oauth.client_secret" ($rabbitmq.oauth).client_secret "sink.kafka.sasl.password" $sasl.password
  "sink.kafka.sasl.oauth.client_secret" ($sasl.oauth).client_secret }}
{{- if kindIs "slice" $config.admin.tokens }}
{{- range $i, $token := $config.admin.tokens }}
{{- $_ := set $secrets (printf "admin.tokens[%d].value" $i) $token.value }}
{{- end }}
{{- end }}
{{- range $key, $value := $secrets }}
{{- if and $value (not (contains "${" (toString $value))) }}
{{- fail (printf "config.%s is the secret itself: name a file of `files`, such as ${file:/run/secrets/cdc-relay/password}" $key) }}
{{- end }}
{{- end }}
{{- range $key, $urls := dict "config.source.url" $config.source.url "config.sink.rabbitmq.url" $rabbitmq.url "init.url" .Values.init.url }}
{{- range kindIs "slice" $urls | ternary $urls (list $urls) }}
{{- $url := regexReplaceAll "\\$\\{[^}]*\\}" (default "" . | toString) "$$" }}
{{- if regexMatch "://[^/?@]*:[^/?@$][^/?@]*@|password *= *'?[^$' &]" $url }}
{{- fail (printf "%s has a password in it: take it out, %s has a place for it" $key (ternary "init.password" "config" (eq $key "init.url"))) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "cdc-relay.isLoopback" -}}
{{- if regexMatch "^(127\\.[0-9.]+|localhost|\\[::1\\]):" (toString .) }}yes{{ end }}
{{- end }}

{{- define "cdc-relay.metricsPort" -}}
{{- $address := toString .Values.config.admin.metrics_listen }}
{{- if or (not (regexMatch ":[1-9][0-9]*$" $address)) (include "cdc-relay.isLoopback" $address) }}
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

{{- /* The ports in config.source.url and init.url, of an address or of key=value, as JSON. */}}
{{- define "cdc-relay.postgresPorts" -}}
{{- $ports := list }}
{{- $source := default "" .Values.config.source.url }}
{{- range $url := list $source (ternary (default "" .Values.init.url) $source .Values.init.enabled) | uniq }}
{{- if contains "://" $url }}
{{- range splitList "," (regexReplaceAll "^[a-z]+://([^/?]*@)?([^/?]*).*$" $url "${2}") }}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" .) | default "5432" | int) }}
{{- end }}
{{- else }}
{{- range splitList "," (regexFind "[0-9][0-9,]*" (regexFind "port *= *[0-9][0-9,]*" $url) | default "5432") }}
{{- $ports = append $ports (int .) }}
{{- end }}
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

{{- /* Where tokens for the broker come from, as JSON: the ports of the issuer, or of AWS and its agents on the node. */}}
{{- define "cdc-relay.tokenPorts" -}}
{{- $sasl := default dict (default dict .Values.config.sink.kafka).sasl }}
{{- $aws := eq "aws-msk-iam" (toString $sasl.mechanism) }}
{{- $ports := list }}
{{- range compact (list (((.Values.config.sink.rabbitmq).oauth).token_url) ($sasl.oauth).token_url (ternary "https://sts" "" $aws) (ternary "http://agent" "" $aws)) }}
{{- $host := regexReplaceAll "^[a-z]+://([^/?]*@)?([^/?]*).*$" . "${2}" }}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $host) | default (ternary "80" "443" (hasPrefix "http:" .)) | int) }}
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
- ports: # DNS; OpenShift's pods of it have 5353
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
    - {port: 5353, protocol: UDP}
    - {port: 5353, protocol: TCP}
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
{{- with include "cdc-relay.tokenPorts" . | fromJsonArray }}
- ports: # who issues tokens for the broker
    {{- range . }}
    - {port: {{ . }}, protocol: TCP}
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
