package deploycheck

import (
	"cmp"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

const relayConfig = "cdc-relay.yaml"

// valueSets are what people set, and what is true of the objects then beside what always is.
var valueSets = []struct {
	name, file, values string
	release            string // cdc-relay
	kinds              string // of all objects, sorted
	check              func(*testing.T, *objects, map[string]any)
}{
	{
		name: "RabbitMQ", file: chartFolder + "/examples/rabbitmq.yaml", kinds: "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget ServiceAccount",
		check: func(t *testing.T, o *objects, config map[string]any) {
			if urls, _ := config["sink.rabbitmq.url"].([]any); len(urls) != 1 || urls[0] != "amqps://rabbitmq:5671/" {
				t.Errorf("sink.rabbitmq.url is %v", urls)
			}
			if *o.deployments[0].Spec.Replicas != 2 {
				t.Errorf("%d replicas", *o.deployments[0].Spec.Replicas)
			}
		},
	},
	{
		name: "Kafka with SASL", file: chartFolder + "/examples/kafka.yaml", kinds: "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget ServiceAccount",
		check: func(t *testing.T, _ *objects, config map[string]any) {
			if config["sink.kafka.sasl.mechanism"] != "scram-sha-512" || config["sink.kafka.tls.enabled"] != true {
				t.Errorf("sink.kafka is %v, %v", config["sink.kafka.sasl.mechanism"], config["sink.kafka.tls.enabled"])
			}
		},
	},
	{
		name: "minimal", values: "config: {source: {url: postgres://relay@db/shop}, sink: {rabbitmq: {url: amqps://mq.example/}}}",
		kinds: "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget ServiceAccount",
	},
	{
		name: "one replica", file: chartFolder + "/examples/rabbitmq.yaml", values: "{replicas: 1, podMonitor: {enabled: true}}",
		kinds: "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget PodMonitor ServiceAccount",
		check: func(t *testing.T, o *objects, _ map[string]any) {
			if r := o.monitors[0].Spec.PodMetricsEndpoints[0].RelabelConfigs; len(r) != 1 || r[0].TargetLabel != "relays" || *r[0].Replacement != "one" {
				t.Errorf("CdcRelayNoStandby is not told that there is none: %+v", r)
			}
		},
	},
	{
		name: "operator and Grafana", file: chartFolder + "/examples/kafka.yaml", release: "orders",
		values: "{podMonitor: {enabled: true, labels: {release: prometheus}}, prometheusRule: {enabled: true, labels: {release: prometheus}}, dashboards: {enabled: true, annotations: {grafana_folder: outbox}}}",
		kinds:  "ConfigMap ConfigMap ConfigMap ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget PodMonitor PrometheusRule ServiceAccount", //nolint:dupword // each object
		check:  monitored,
	},
	{
		name: "init", file: chartFolder + "/examples/rabbitmq.yaml", values: "init: {enabled: true, args: [--outbox-table, --no-backfill]}",
		kinds: "ConfigMap ConfigMap Deployment Job NetworkPolicy NetworkPolicy Pod PodDisruptionBudget ServiceAccount", //nolint:dupword // each object
		check: initialized,
	},
	{
		name: "init and a token that may be missing", file: chartFolder + "/examples/kafka.yaml",
		kinds: "ConfigMap Deployment Job NetworkPolicy Pod PodDisruptionBudget PodMonitor ServiceAccount",
		values: `
enabled: true
init: {enabled: true, hook: false, url: "postgres://owner@db:6432/shop"}
config:
  sink: {kafka: {sasl: {mechanism: aws-msk-iam, username: null, password: null}}}
  admin: {tokens: [{name: console, role: read, value: "${file:/run/secrets/cdc-relay/token}"}]}
files: [{secret: cdc-relay}, {configMap: cdc-relay-ca}, {secret: console, items: [{key: token, path: token}], optional: true}]
image: {tag: 1.2.3-rc.1_}
podMonitor: {enabled: true, interval: 5s}
podLabels: {app.kubernetes.io/component: other, app.kubernetes.io/version: "9"}
`,
		check: func(t *testing.T, o *objects, _ map[string]any) {
			for what, pod := range podsOf(o) {
				if s := volume(t, pod, "files").Projected.Sources; len(s) != 3 || s[2].Secret.Optional == nil || !*s[2].Secret.Optional {
					t.Errorf("%s does not start without the token: %+v", what, s)
				}
			}
			for _, n := range o.networks {
				for _, port := range []string{"5432", "6432", "9093", "443", "80"} {
					if !letsOut(n, port) {
						t.Errorf("NetworkPolicy %s does not let out to port %s", n.Name, port)
					}
				}
			}
			if timeout := o.monitors[0].Spec.PodMetricsEndpoints[0].ScrapeTimeout; timeout != "" {
				t.Errorf("the operator refuses a timeout of %s that is longer than the interval", timeout)
			}
			labels, pod := o.deployments[0].Labels, o.deployments[0].Spec.Template.Labels
			if labels["app.kubernetes.io/version"] != "1.2.3-rc.1" || labels["app.kubernetes.io/managed-by"] != "Helm" || !strings.HasPrefix(labels["helm.sh/chart"], "cdc-relay-") ||
				pod["helm.sh/chart"] != "" || pod["app.kubernetes.io/version"] != "9" || pod["app.kubernetes.io/component"] != "relay" {
				t.Errorf("labels %v, of the pods %v", labels, pod)
			}
		},
	},
	{
		name: "tokens of an issuer", kinds: "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget Service ServiceAccount", values: `
console: {enabled: true}
config:
  source: {url: "postgres://relay:${RELAY_PASSWORD:-}@db/shop"}
  sink:
    rabbitmq:
      url: amqps://mq/
      oauth: {token_url: "https://login.example:8443/token", client_id: relay, client_secret: "${file:/run/secrets/cdc-relay/client}"}
  admin: {listen: "[::1]:8465", tokens: [{name: a, role: read, value: "${file:/run/secrets/cdc-relay/token}"}]}
`,
		check: func(t *testing.T, o *objects, config map[string]any) {
			if config["admin.listen"] != "[::]:8465" {
				t.Errorf("the console listens on %v", config["admin.listen"])
			}
			if !letsOut(o.networks[0], "8443") {
				t.Errorf("NetworkPolicy does not let out to the issuer: %+v", o.networks[0].Spec.Egress)
			}
		},
	},
	{
		name: "other names", release: "orders", kinds: "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget",
		values: `
fullnameOverride: orders-relay
serviceAccount: {create: false, name: outbox}
imagePullSecrets: [{name: registry}]
config:
  source: {url: postgres://app@orders-rw:5432/app, slot: orders}
  sink:
    rabbitmq:
      url: amqps://mq.messaging.svc:5671/orders
      username: ${file:/run/secrets/cdc-relay/rabbitmq-username}
      password: ${file:/run/secrets/cdc-relay/rabbitmq-password}
files:
  - {secret: orders-app, items: [{key: password, path: postgres-password}]}
  - {secret: mq-default-user, items: [{key: username, path: rabbitmq-username}, {key: password, path: rabbitmq-password}]}
`,
		check: func(t *testing.T, o *objects, config map[string]any) {
			d := o.deployments[0]
			if d.Name != "orders-relay" || o.configs[0].Name != "orders-relay" || d.Spec.Template.Spec.ServiceAccountName != "outbox" || config["source.slot"] != "orders" {
				t.Errorf("names: %s, %s, %s", d.Name, o.configs[0].Name, d.Spec.Template.Spec.ServiceAccountName)
			}
		},
	},
	{
		name: "console", file: chartFolder + "/examples/rabbitmq.yaml", kinds: "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget Service ServiceAccount",
		values: "console: {enabled: true, from: [{podSelector: {matchLabels: {app: ingress}}}]}",
		check: func(t *testing.T, o *objects, config map[string]any) {
			service, in := o.services[0], o.networks[0].Spec.Ingress
			ports := container(t, &o.deployments[0].Spec.Template.Spec).Ports
			if config["admin.listen"] != "0.0.0.0:8465" || len(service.Spec.Ports) != 1 || service.Spec.Ports[0].TargetPort.StrVal != "api" ||
				len(ports) != 2 || ports[1].Name != "api" || ports[1].ContainerPort != service.Spec.Ports[0].Port || ports[1].ContainerPort != 8465 {
				t.Errorf("the console listens on %v, the pod has %+v, the Service %+v", config["admin.listen"], ports, service.Spec.Ports)
			}
			if !service.Spec.PublishNotReadyAddresses {
				t.Error("the console is gone when it is wanted most: while the leader is not ready")
			}
			if len(in) != 2 || in[1].Ports[0].Port.StrVal != "api" || len(in[1].From) != 1 {
				t.Errorf("NetworkPolicy lets in %+v", in)
			}
		},
	},
	{
		name: "everything", kinds: "ConfigMap Deployment Job NetworkPolicy Pod PodDisruptionBudget ServiceAccount", values: `
image: {repository: registry.example/cdc-relay, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
replicas: 3
config:
  source: {failover_slot: "on"}
  sink: {kafka: {brokers: ["kafka-0:9093", "kafka-1:9094"], tls: {enabled: true}}}
  delivery: {shutdown_grace: 2m, max_in_flight: 1000000, max_in_flight_bytes: 64MiB}
  retention: {mode: delete, keep: 24h}
  admin: {metrics_listen: "[::]:9000"}
env:
  - {name: CDC_RELAY_SOURCE__URL, value: "postgres://relay@db-1:5432,db-2:5433/shop"}
  - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://collector:4317"}
envFrom: [{configMapRef: {name: more}}]
init: {enabled: true, hook: false, url: "postgres://owner@db-1/shop"}
networkPolicy: {egress: [{ports: [{port: 4317}]}, {ports: [{port: 5433}]}], postgres: [{ipBlock: {cidr: 10.0.0.0/24}}], metricsFrom: []}
resources: {requests: {cpu: "1", memory: 512Mi}, limits: {memory: 1Gi}}
annotations: {a: b}
podAnnotations: {sidecar.istio.io/inject: "false"}
podLabels: {team: orders}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: dedicated, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app.kubernetes.io/component: relay}}}]
priorityClassName: high
volumes: [{name: extra, emptyDir: {}}]
volumeMounts: [{name: extra, mountPath: /extra, readOnly: true}]
`,
		check: func(t *testing.T, o *objects, config map[string]any) {
			pod := o.deployments[0].Spec.Template
			c := container(t, &pod.Spec)
			if !strings.HasPrefix(c.Image, "registry.example/cdc-relay@sha256:") || c.Ports[0].ContainerPort != 9000 || env(c, "GOMEMLIMIT") != "819MiB" {
				t.Errorf("%s, %+v, GOMEMLIMIT %s", c.Image, c.Ports, env(c, "GOMEMLIMIT"))
			}
			if pod.Labels["team"] != "orders" || pod.Annotations["sidecar.istio.io/inject"] != "false" || pod.Spec.Affinity.PodAntiAffinity != nil ||
				len(pod.Spec.TopologySpreadConstraints) != 1 || pod.Spec.PriorityClassName != "high" || len(c.EnvFrom) != 1 {
				t.Errorf("pod: %+v", pod)
			}
			if printed := config["delivery.max_in_flight"]; printed != float64(1000000) {
				t.Errorf("delivery.max_in_flight is %v", printed)
			}
			if len(o.jobs[0].Annotations) > 0 || o.jobs[0].Spec.Template.Spec.Volumes[0].ConfigMap.Name != o.configs[0].Name {
				t.Errorf("init without the hook: %+v", o.jobs[0])
			}
			if from := o.networks[0].Spec.Ingress[0].From; len(from) > 0 {
				t.Errorf("metricsFrom: [] is not everybody: %+v", from)
			}
		},
	},
	{
		name: "TLS files", kinds: "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget ServiceAccount", values: `
config:
  source:
    url: host=db-1,db-2 port=5433,5434 dbname=shop user=relay sslmode=verify-full sslrootcert=/run/secrets/cdc-relay/postgres.pem
  sink:
    kafka:
      brokers: [kafka:9094]
      tls: {enabled: true, ca: /run/secrets/cdc-relay/kafka.pem, cert: /run/secrets/cdc-relay/client.pem}
files:
  - secret: cdc-relay
  - {configMap: trust, items: [{key: ca.crt, path: postgres.pem}, {key: kafka-ca.crt, path: kafka.pem}]}
  - {secret: relay-client, items: [{key: tls-combined.pem, path: client.pem}], optional: true}
`,
		check: func(t *testing.T, o *objects, _ map[string]any) {
			sources := volume(t, &o.deployments[0].Spec.Template.Spec, "files").Projected.Sources
			if len(sources) != 3 || sources[1].ConfigMap.Items[0].Path != "postgres.pem" || sources[2].Secret.Optional == nil || !*sources[2].Secret.Optional {
				t.Errorf("files: %+v", sources)
			}
			for _, port := range []string{"5433", "5434", "9094"} {
				if !letsOut(o.networks[0], port) {
					t.Errorf("NetworkPolicy does not let out to port %s", port)
				}
			}
		},
	},
	{
		name: "several tables", kinds: "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget ServiceAccount", values: `
config:
  source:
    url: postgres://relay@db:5432/shop
    tables: [public.outbox, {name: billing.events, key: invoice_id, type: kind}]
  outbox: {headers: {tenant: tenant_id}}
  sink:
    rabbitmq:
      url: [amqps://mq-0:5671/, "amqps://mq-1:5672/shop"]
      exchange: "{aggregate}.events"
      routing_key: "{type}"
      allow: {exchange: ["*.events"]}
`,
		check: func(t *testing.T, o *objects, config map[string]any) {
			tables, _ := config["source.tables"].([]any)
			if len(tables) != 2 || config["sink.rabbitmq.exchange"] != "{aggregate}.events" {
				t.Errorf("tables %v, exchange %v", tables, config["sink.rabbitmq.exchange"])
			}
			if !letsOut(o.networks[0], "5671") || !letsOut(o.networks[0], "5672") {
				t.Error("NetworkPolicy lets out to one node of two")
			}
		},
	},
	{
		name: "nothing that can be left out", kinds: "ConfigMap Deployment Pod", values: `
config: {source: {url: postgres://relay@db/shop, password: "${RELAY_PASSWORD:-}"}, sink: {stdout: {}}}
files: []
networkPolicy: {enabled: false}
podDisruptionBudget: {enabled: false}
serviceAccount: {create: false}
resources: null
podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}
`,
		check: func(t *testing.T, o *objects, _ map[string]any) {
			spec := o.deployments[0].Spec.Template.Spec
			if spec.ServiceAccountName != "default" || spec.SecurityContext.RunAsUser != nil || env(container(t, &spec), "GOMEMLIMIT") != "" {
				t.Errorf("pod: %+v", spec)
			}
		},
	},
}

// Kubernetes' own types decode what the chart makes of each set of values, and it fits together.
func TestChart(t *testing.T) {
	t.Parallel()
	if len(valueSets) < 14 {
		t.Errorf("%d sets of values", len(valueSets))
	}
	for _, set := range valueSets {
		t.Run(set.name, func(t *testing.T) {
			t.Parallel()
			o := made(t, cmp.Or(set.release, "cdc-relay"), set.file, set.values)
			var kinds []string
			for kind, n := range o.kinds {
				kinds = append(kinds, slices.Repeat([]string{kind}, n)...)
			}
			slices.Sort(kinds)
			if got := strings.Join(kinds, " "); got != set.kinds {
				t.Errorf("objects: %s, want %s", got, set.kinds)
			}
			if len(o.deployments) != 1 {
				t.Fatalf("%d Deployments", len(o.deployments))
			}
			names(t, o)
			text := configOf(t, o)
			config := understood(t, text, variables(&o.deployments[0].Spec.Template.Spec))
			for what, pod := range podsOf(o) {
				findsItsFiles(t, what, pod, text)
				isRestricted(t, what, pod)
				isCommand(t, container(t, pod).Args)
			}
			portsAgree(t, o, config)
			selectorsFindThePods(t, o)
			lifeAndLimits(t, o, config)
			if set.check != nil {
				set.check(t, o, config)
			}
		})
	}
}

func podsOf(o *objects) map[string]*core.PodSpec {
	pods := map[string]*core.PodSpec{"relay": &o.deployments[0].Spec.Template.Spec}
	for i := range o.jobs {
		pods[o.jobs[i].Name] = &o.jobs[i].Spec.Template.Spec
	}
	for i := range o.pods {
		pods[o.pods[i].Name] = &o.pods[i].Spec
	}
	return pods
}

// podOf is the pod of a manifest's Deployment.
func podOf(t *testing.T, name string) *core.PodSpec {
	t.Helper()
	return &decode(t, map[string]string{name: read(t, name)}).deployments[0].Spec.Template.Spec
}

// configOf is the configuration that the pods of the Deployment have.
func configOf(t *testing.T, o *objects) string {
	t.Helper()
	name := volume(t, &o.deployments[0].Spec.Template.Spec, "config").ConfigMap.Name
	for _, c := range o.configs {
		if c.Name == name && c.Data[relayConfig] != "" {
			return c.Data[relayConfig]
		}
	}
	t.Fatalf("there is no ConfigMap %s with %s", name, relayConfig)
	return ""
}

func container(t *testing.T, pod *core.PodSpec) *core.Container {
	t.Helper()
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	return &pod.Containers[0]
}

func volume(t *testing.T, pod *core.PodSpec, name string) core.Volume {
	t.Helper()
	i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == name })
	if i < 0 {
		t.Fatalf("there is no volume %s", name)
	}
	return pod.Volumes[i]
}

func env(c *core.Container, name string) string {
	i := slices.IndexFunc(c.Env, func(e core.EnvVar) bool { return e.Name == name })
	if i < 0 {
		return ""
	}
	return c.Env[i].Value
}

// variables are those of the configuration that the pod sets.
func variables(pod *core.PodSpec) (list []string) {
	for _, e := range pod.Containers[0].Env {
		if strings.Contains(e.Name, "__") {
			list = append(list, e.Name+"="+e.Value)
		}
	}
	return list
}

// names are unique and may be what they are, as label values too.
func names(t *testing.T, o *objects) {
	t.Helper()
	seen := map[string]bool{}
	check := func(kind string, m meta.ObjectMeta) {
		if seen[kind+m.Name] || len(validation.IsDNS1123Label(m.Name)) > 0 || m.Namespace != "" {
			t.Errorf("%s %s/%s", kind, m.Namespace, m.Name)
		}
		seen[kind+m.Name] = true
		for name, value := range m.Labels {
			if wrong := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(wrong) > 0 {
				t.Errorf("%s: label %s=%s: %v", kind, name, value, wrong)
			}
		}
	}
	for _, c := range o.configs {
		check("ConfigMap", c.ObjectMeta)
	}
	for _, n := range o.networks {
		check("NetworkPolicy", n.ObjectMeta)
	}
	for _, j := range o.jobs {
		check("Job", j.ObjectMeta)
	}
	check("Deployment", o.deployments[0].ObjectMeta)
	check("pods", meta.ObjectMeta{Name: "a", Labels: o.deployments[0].Spec.Template.Labels})
	check("Pod", o.pods[0].ObjectMeta)
}

// secretPath is a file of the volume that the values' files make.
var secretPath = regexp.MustCompile(`/run/secrets/cdc-relay/([A-Za-z0-9._-]+)`)

// findsItsFiles says that the pod has its configuration and its secrets where the configuration
// looks for them, that it can write nothing but the folder of the socket, and has no token.
func findsItsFiles(t *testing.T, what string, pod *core.PodSpec, config string) {
	t.Helper()
	c := container(t, pod)
	mounted := map[string]string{} // volume by path
	for _, m := range c.VolumeMounts {
		mounted[m.MountPath] = m.Name
		volume(t, pod, m.Name)
		if !m.ReadOnly && (what != "relay" || m.MountPath != "/run/cdc-relay") || m.SubPath != "" {
			t.Errorf("%s: %s can be written, or is never read again", what, m.MountPath)
		}
	}
	if len(mounted) != len(c.VolumeMounts) || len(pod.Volumes) != len(mounted) {
		t.Errorf("%s: %d volumes, mounted: %v", what, len(pod.Volumes), c.VolumeMounts)
	}
	file := env(c, "CDC_RELAY_CONFIG")
	if v := volume(t, pod, mounted[filepath.Dir(file)]); v.ConfigMap == nil || filepath.Base(file) != relayConfig {
		t.Errorf("%s: %s is not in a ConfigMap: %+v", what, file, v)
	}
	for _, found := range secretPath.FindAllStringSubmatch(config, -1) {
		v := volume(t, pod, mounted[filepath.Dir(found[0])])
		if v.Projected == nil || !slices.ContainsFunc(v.Projected.Sources, func(s core.VolumeProjection) bool { return gives(s, found[1]) }) {
			t.Errorf("%s: nothing gives %s: %+v", what, found[0], v)
		} else if mode := *v.Projected.DefaultMode; mode != 0o440 {
			t.Errorf("%s: secrets have mode %o", what, mode)
		}
	}
	if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
		t.Errorf("%s has a token, or the links of services", what)
	}
	if c.TerminationMessagePolicy != core.TerminationMessageFallbackToLogsOnError {
		t.Errorf("%s does not say why it ended", what)
	}
}

// gives reports whether there is a file of that name, or may be: all keys of a Secret are files.
func gives(s core.VolumeProjection, name string) bool {
	var items []core.KeyToPath
	if s.Secret != nil {
		items = s.Secret.Items
	} else {
		items = s.ConfigMap.Items
	}
	return len(items) == 0 || slices.ContainsFunc(items, func(i core.KeyToPath) bool { return i.Path == name })
}

// portsAgree says that one port is open, that of metrics and health: the configuration's, the
// container's, the probes', Prometheus's and the policy's. What the pods connect to, the policies
// let out.
func portsAgree(t *testing.T, o *objects, config map[string]any) {
	t.Helper()
	relay := container(t, &o.deployments[0].Spec.Template.Spec)
	open := relay.Ports[0]
	if got := port(t, config["admin.metrics_listen"]); open.Name != "metrics" || got != strconv.Itoa(int(open.ContainerPort)) || len(relay.Ports) != 1+len(o.services) {
		t.Errorf("admin.metrics_listen has port %s, the container %+v", got, relay.Ports)
	}
	if listen, _ := config["admin.metrics_listen"].(string); !strings.HasPrefix(listen, "0.0.0.0:") && !strings.HasPrefix(listen, "[::]:") {
		t.Errorf("admin.metrics_listen is %s: nobody outside the pod reaches it", listen)
	}
	if listen, _ := config["admin.listen"].(string); !strings.HasPrefix(listen, "127.0.0.1:") && len(o.services) == 0 {
		t.Errorf("admin.listen is %s, and there is no console", listen)
	}
	for path, probe := range map[string]*core.Probe{"/healthz": relay.LivenessProbe, "/readyz": relay.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != open.Name {
			t.Errorf("probe %s: %+v", path, probe.HTTPGet)
		}
	}
	for _, n := range o.networks {
		if len(n.Spec.PolicyTypes) != 2 {
			t.Errorf("NetworkPolicy is about %v", n.Spec.PolicyTypes)
		}
		for _, want := range wanted(t, config) {
			if !letsOut(n, want) {
				t.Errorf("NetworkPolicy %s does not let out to port %s", n.Name, want)
			}
		}
		if in := n.Spec.Ingress; n.Name == o.deployments[0].Name && (len(in) != 1+len(o.services) || len(in[0].Ports) != 1 || in[0].Ports[0].Port.StrVal != open.Name) {
			t.Errorf("NetworkPolicy lets in %+v", in)
		}
	}
	for _, m := range o.monitors {
		if endpoints := m.Spec.PodMetricsEndpoints; len(endpoints) != 1 || *endpoints[0].Port != open.Name || endpoints[0].Path != "/metrics" {
			t.Errorf("PodMonitor: %+v", endpoints)
		}
	}
}

// wanted are ports that the configuration names, and DNS.
func wanted(t *testing.T, config map[string]any) []string {
	t.Helper()
	list := []string{"53/UDP", "53", "5353/UDP", "5353"}
	for _, key := range []string{"sink.rabbitmq.url", "sink.kafka.brokers"} {
		addresses, _ := config[key].([]any)
		for _, address := range addresses {
			text := address.(string)
			if !regexp.MustCompile(`:\d+(/|$)`).MatchString(text) {
				text = "amqps://mq:5671/" // the default
			}
			list = append(list, port(t, text))
		}
	}
	if url, _ := config["source.url"].(string); strings.Contains(url, "://") && !strings.Contains(url, ",") {
		list = append(list, cmp.Or(regexp.MustCompile(`\d+$`).FindString(strings.Split(url, "/")[2]), "5432"))
	}
	return list
}

// letsOut reports whether the port is open, of TCP if nothing else follows it.
func letsOut(n networking.NetworkPolicy, port string) bool {
	return slices.ContainsFunc(n.Spec.Egress, func(r networking.NetworkPolicyEgressRule) bool {
		return slices.ContainsFunc(r.Ports, func(p networking.NetworkPolicyPort) bool {
			open := p.Port.String()
			if p.Protocol != nil && *p.Protocol != core.ProtocolTCP {
				open += "/" + string(*p.Protocol)
			}
			return open == port
		})
	})
}

// selectorsFindThePods says that every selector finds the pods of the Deployment, that what counts
// them finds no others, and that each pod is under a policy.
func selectorsFindThePods(t *testing.T, o *objects) {
	t.Helper()
	d := o.deployments[0]
	others := []map[string]string{o.pods[0].Labels}
	for _, j := range o.jobs {
		others = append(others, j.Spec.Template.Labels)
	}
	selectors := map[string]*meta.LabelSelector{"Deployment": d.Spec.Selector}
	for i := range o.budgets {
		selectors["PodDisruptionBudget"] = o.budgets[i].Spec.Selector
	}
	for i := range o.monitors {
		selectors["PodMonitor"] = &o.monitors[i].Spec.Selector
	}
	for i := range o.services {
		selectors["Service"] = &meta.LabelSelector{MatchLabels: o.services[i].Spec.Selector}
	}
	if a := d.Spec.Template.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		for _, term := range a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			selectors["anti-affinity by "+term.PodAffinityTerm.TopologyKey] = term.PodAffinityTerm.LabelSelector
		}
	}
	for what, s := range selectors {
		if !selects(t, s, d.Spec.Template.Labels) {
			t.Errorf("%s selects %s, the pods have %v", what, meta.FormatLabelSelector(s), d.Spec.Template.Labels)
		}
		for _, other := range others {
			if selects(t, s, other) {
				t.Errorf("%s takes a pod with %v for a relay", what, other)
			}
		}
	}
	if len(o.networks) > 0 {
		for _, pod := range append(others, d.Spec.Template.Labels) {
			if !slices.ContainsFunc(o.networks, func(n networking.NetworkPolicy) bool { return selects(t, &n.Spec.PodSelector, pod) }) {
				t.Errorf("no NetworkPolicy is about %v", pod)
			}
		}
	}
}

func selects(t *testing.T, s *meta.LabelSelector, pod map[string]string) bool {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	must(t, err)
	return !selector.Empty() && selector.Matches(labels.Set(pod))
}

// isRestricted says that the pod meets the restricted Pod Security Standard, and cannot write its
// root.
func isRestricted(t *testing.T, what string, pod *core.PodSpec) {
	t.Helper()
	c := container(t, pod)
	p, s := pod.SecurityContext, c.SecurityContext
	if !*p.RunAsNonRoot || p.RunAsUser != nil && *p.RunAsUser == 0 || p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: pod: %+v", what, p)
	}
	if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
		t.Errorf("%s: container: %+v", what, s)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.HostPort != 0 }) || s.Privileged != nil {
		t.Errorf("%s uses its node", what)
	}
}

// lifeAndLimits says that a stop has the time that it needs, that a rollout or a drain never leaves
// the slot to nobody or waits for ever, and that Go knows its limit.
func lifeAndLimits(t *testing.T, o *objects, config map[string]any) {
	t.Helper()
	spec := &o.deployments[0].Spec
	relay := container(t, &spec.Template.Spec)
	grace := duration(t, config["delivery.shutdown_grace"])
	if got, least := time.Duration(*spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second, grace+10*time.Second; got < least {
		t.Errorf("terminationGracePeriodSeconds is %s, want %s or more", got, least)
	}
	probe := relay.ReadinessProbe
	unready := grace + time.Duration(probe.PeriodSeconds*probe.FailureThreshold)*time.Second
	if wait := time.Duration(spec.MinReadySeconds) * time.Second; wait <= unready || 4*wait > time.Duration(*spec.ProgressDeadlineSeconds)*time.Second {
		t.Errorf("minReadySeconds is %s: a new leader that is not ready is seen after %s, and a rollout has %d s", wait, unready, *spec.ProgressDeadlineSeconds)
	}
	if update := spec.Strategy.RollingUpdate; update.MaxUnavailable.IntVal != 0 || update.MaxSurge.IntVal != 1 {
		t.Errorf("rollout: %+v", update)
	}
	for _, b := range o.budgets {
		if b.Spec.MinAvailable != nil || b.Spec.MaxUnavailable.IntVal != 1 || *b.Spec.UnhealthyPodEvictionPolicy != policy.AlwaysAllow {
			t.Errorf("budget: %+v", b.Spec)
		}
	}
	if !slices.Equal(relay.Args, []string{"run", "--hold-on-fatal"}) || len(relay.Command) > 0 {
		t.Errorf("it runs %v %v", relay.Command, relay.Args)
	}
	if sum := spec.Template.Annotations["checksum/config"]; len(sum) != 64 {
		t.Errorf("a change of the configuration is no rollout: checksum %q", sum)
	}
	limit := relay.Resources.Limits.Memory().Value()
	if limit == 0 {
		return
	}
	if soft := bytesOf(t, env(relay, "GOMEMLIMIT")); soft > limit*85/100 || soft < limit/2 {
		t.Errorf("GOMEMLIMIT is %d, the limit %d", soft, limit)
	}
	if relay.Resources.Requests.Cpu().IsZero() || relay.Resources.Requests.Memory().IsZero() || !relay.Resources.Limits.Cpu().IsZero() {
		t.Errorf("resources: %+v", relay.Resources)
	}
}

// initialized says that the Job comes before all else, and brings what is not there yet.
func initialized(t *testing.T, o *objects, _ map[string]any) {
	t.Helper()
	job := o.jobs[0]
	c := container(t, &job.Spec.Template.Spec)
	if args := strings.Join(c.Args, " "); !strings.HasPrefix(args, "init --url postgres://owner@postgres:5432/shop?") || !strings.HasSuffix(args, " --role relay --outbox-table --no-backfill") {
		t.Errorf("it runs %s", args)
	}
	i := slices.IndexFunc(c.Env, func(e core.EnvVar) bool { return e.Name == "PGPASSWORD" })
	if i < 0 || c.Env[i].ValueFrom.SecretKeyRef.Name != "cdc-relay-owner" || c.Env[i].ValueFrom.SecretKeyRef.Key != "password" {
		t.Errorf("the owner's password: %+v", c.Env)
	}
	name := volume(t, &job.Spec.Template.Spec, "config").ConfigMap.Name
	weight := func(m meta.ObjectMeta) int {
		if hook := m.Annotations["helm.sh/hook"]; hook != "pre-install,pre-upgrade" {
			t.Errorf("%s: hook %q", m.Name, hook)
		}
		n, err := strconv.Atoi(m.Annotations["helm.sh/hook-weight"])
		must(t, err)
		return n
	}
	for _, config := range o.configs {
		if config.Name == name && (weight(config.ObjectMeta) >= weight(job.ObjectMeta) || config.Data[relayConfig] != configOf(t, o)) {
			t.Errorf("ConfigMap %s comes after the Job, or is another", name)
		}
	}
	for _, n := range o.networks {
		if n.Name == name && weight(n.ObjectMeta) >= weight(job.ObjectMeta) {
			t.Errorf("NetworkPolicy %s comes after the Job", name)
		}
	}
	if job.Spec.Template.Spec.ServiceAccountName != "" || job.Spec.TTLSecondsAfterFinished == nil {
		t.Errorf("the Job needs an account that is not there yet, or stays: %+v", job.Spec)
	}
}

// monitored says that the operator and Grafana get all alerts and dashboards, as the files are, and
// that the job of the metrics is the release.
func monitored(t *testing.T, o *objects, _ map[string]any) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []any }
	}
	must(t, yaml.Unmarshal([]byte(read(t, "deploy/prometheus/cdc-relay.rules.yml")), &file))
	rule := o.rules[0]
	if len(rule.Spec.Groups) != len(file.Groups) || len(file.Groups) < 2 {
		t.Fatalf("%d groups of alerts, want %d", len(rule.Spec.Groups), len(file.Groups))
	}
	for i, group := range rule.Spec.Groups {
		if len(group.Rules) != len(file.Groups[i].Rules) || len(group.Rules) == 0 {
			t.Errorf("group %s has %d alerts", group.Name, len(group.Rules))
		}
	}
	monitor := o.monitors[0]
	pod := o.deployments[0].Spec.Template.Labels
	if pod[monitor.Spec.JobLabel] != "orders" || monitor.Labels["release"] != "prometheus" || rule.Labels["release"] != "prometheus" {
		t.Errorf("job %s, labels %v, %v", pod[monitor.Spec.JobLabel], monitor.Labels, rule.Labels)
	}
	knowKinds()
	boards := 0
	for _, c := range o.configs {
		for name, text := range c.Data {
			if filepath.Ext(name) != ".json" {
				continue
			}
			boards++
			var got, want any
			must(t, yaml.Unmarshal([]byte(text), &got))
			must(t, yaml.Unmarshal([]byte(read(t, "deploy/grafana/"+name)), &want))
			if !reflect.DeepEqual(got, want) || c.Labels["grafana_dashboard"] != "1" || c.Annotations["grafana_folder"] != "outbox" {
				t.Errorf("ConfigMap %s is not %s", c.Name, name)
			}
			if _, err := decodeDashboard(text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			// kubectl apply keeps it a second time, in an annotation of 256 KiB at most
			if size := len(c.Data[name]); size > 200<<10 {
				t.Errorf("%s has %d bytes", name, size)
			}
		}
	}
	if files, err := filepath.Glob(filepath.Join(root, "deploy/grafana/*.json")); err != nil || boards != len(files) || boards == 0 {
		t.Errorf("%d dashboards of %v", boards, files)
	}
}
