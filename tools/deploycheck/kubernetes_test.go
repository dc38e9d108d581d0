package deploycheck

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1" //nolint:depguard // types of the operator, no metrics
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const relayConfig = "cdc-relay.yaml"

// cluster is what kustomize makes of deploy/kubernetes, one of each kind.
type cluster struct {
	Account    core.ServiceAccount
	Config     core.ConfigMap
	Deployment apps.Deployment
	Budget     policy.PodDisruptionBudget
	Network    networking.NetworkPolicy
	Monitor    monitoring.PodMonitor
}

// built runs kustomize, and decodes what comes out: an unknown field is an error.
func built(t *testing.T) *cluster {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "deploy/kubernetes"))
	must(t, err)
	c := &cluster{}
	into := map[string]any{
		"v1 ServiceAccount": &c.Account, "v1 ConfigMap": &c.Config, "apps/v1 Deployment": &c.Deployment, "policy/v1 PodDisruptionBudget": &c.Budget,
		"networking.k8s.io/v1 NetworkPolicy": &c.Network, "monitoring.coreos.com/v1 PodMonitor": &c.Monitor,
	}
	for _, object := range objects.Resources() {
		kind := object.GetApiVersion() + " " + object.GetKind()
		target, ok := into[kind]
		if !ok {
			t.Fatalf("an object of kind %s that this test does not know, or a second one", kind)
		}
		delete(into, kind)
		text, err := object.AsYAML()
		must(t, err)
		if err := strictly(text, target); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for kind := range into {
		t.Errorf("there is no %s", kind)
	}
	if t.Failed() {
		t.FailNow()
	}
	return c
}

func (c *cluster) relay(t *testing.T) *core.Container {
	t.Helper()
	pod := &c.Deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	return &pod.Containers[0]
}

// The command of docs/metrics.md makes a PrometheusRule of the alerts, all of them.
func TestAlertsForTheOperator(t *testing.T) {
	t.Parallel()
	_, command, _ := strings.Cut(read(t, "docs/metrics.md"), "```sh\n(printf 'apiVersion: monitoring")
	command, _, ok := strings.Cut(command, " | kubectl apply -f -\n```\n")
	if !ok {
		t.Fatal("docs/metrics.md has no command that makes a PrometheusRule")
	}
	text, err := runs(t, nil, "sh", "-c", "cd "+root+" && (printf 'apiVersion: monitoring"+command)
	must(t, err)
	var rule monitoring.PrometheusRule
	must(t, strictly([]byte(text), &rule))
	count := 0
	for _, group := range rule.Spec.Groups {
		count += len(group.Rules)
	}
	if want := strings.Count(read(t, "deploy/prometheus/cdc-relay.rules.yml"), "- alert: "); rule.Kind != "PrometheusRule" || count != want || want == 0 {
		t.Errorf("a %s with %d alerts, want %d", rule.Kind, count, want)
	}
}

// What is in the directory is in the build, and the kustomization has no field that nobody reads.
func TestKustomizationIsWhole(t *testing.T) {
	t.Parallel()
	c := built(t)
	files, err := filepath.Glob(filepath.Join(root, "deploy/kubernetes/*.yaml"))
	must(t, err)
	text := read(t, "deploy/kubernetes/kustomization.yaml")
	for _, file := range files {
		if name := filepath.Base(file); name != "kustomization.yaml" && !strings.Contains(text, "- "+name) && !strings.Contains(text, "["+name+"]") {
			t.Errorf("kustomization.yaml does not name %s", name)
		}
	}
	if c.Config.Data[relayConfig] != read(t, "deploy/kubernetes/"+relayConfig) {
		t.Error("the ConfigMap is not the file")
	}
	image := c.relay(t).Image
	if !strings.HasPrefix(image, "cdc-relay:") {
		t.Errorf("the image is %s: kustomization.yaml does not set it", image)
	}
}

// The pod finds its configuration and its secrets where the configuration looks for them, and
// nothing else.
func TestPodFindsItsFiles(t *testing.T) {
	t.Parallel()
	c := built(t)
	relay, pod := c.relay(t), &c.Deployment.Spec.Template.Spec
	mounted := map[string]string{} // volume by path
	for _, m := range relay.VolumeMounts {
		mounted[m.MountPath] = m.Name
		if !m.ReadOnly {
			t.Errorf("%s can be written", m.MountPath)
		}
	}
	volume := func(path string) core.Volume {
		i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == mounted[path] })
		if i < 0 {
			t.Fatalf("nothing is mounted at %s: %v", path, mounted)
		}
		return pod.Volumes[i]
	}
	file := env(relay, "CDC_RELAY_CONFIG")
	if v := volume(filepath.Dir(file)); v.ConfigMap == nil || v.ConfigMap.Name != c.Config.Name || filepath.Base(file) != relayConfig {
		t.Errorf("%s is not the ConfigMap %s: %+v", file, c.Config.Name, v.ConfigMap)
	}
	secrets := secretFiles(read(t, "deploy/kubernetes/"+relayConfig))
	if len(secrets) < 5 {
		t.Errorf("only %d secrets are files: %v", len(secrets), secrets)
	}
	create := read(t, "deploy/kubernetes/kustomization.yaml")
	for _, path := range secrets {
		if v := volume(filepath.Dir(path)); v.Secret == nil || !strings.Contains(create, "secret generic "+v.Secret.SecretName+" ") {
			t.Errorf("%s is not in the Secret: %+v", path, v)
		}
		if !strings.Contains(create, "--from-file="+filepath.Base(path)) {
			t.Errorf("the command that makes the Secret does not give %s", filepath.Base(path))
		}
	}
	for _, path := range caPath.FindAllString(read(t, "deploy/kubernetes/"+relayConfig), -1) {
		if v := volume(filepath.Dir(path)); v.ConfigMap == nil || !strings.Contains(create, "configmap "+v.ConfigMap.Name+" ") || !strings.Contains(create, "--from-file="+filepath.Base(path)) {
			t.Errorf("%s is not in the ConfigMap: %+v", path, v)
		}
	}
	if pod.ServiceAccountName != c.Account.Name || *c.Account.AutomountServiceAccountToken || *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
		t.Error("the pod has a token, the links of services, or another account")
	}
	if mode := volume(filepath.Dir(secrets[0])).Secret.DefaultMode; *mode&0o007 != 0 || pod.SecurityContext.FSGroup == nil {
		t.Errorf("secrets have mode %o", *mode)
	}
}

func env(c *core.Container, name string) string {
	i := slices.IndexFunc(c.Env, func(e core.EnvVar) bool { return e.Name == name })
	if i < 0 {
		return ""
	}
	return c.Env[i].Value
}

// One port is open, that of metrics and health: the configuration's, the container's, the probes',
// Prometheus's and the policy's. What the pod connects to, the policy lets out.
func TestPortsAgree(t *testing.T) {
	t.Parallel()
	c := built(t)
	relay, config := c.relay(t), configuration(t, "deploy/kubernetes/"+relayConfig)
	if len(relay.Ports) != 1 {
		t.Fatalf("%d ports", len(relay.Ports))
	}
	open := relay.Ports[0]
	if got := port(t, config["admin.metrics_listen"]); got != strconv.Itoa(int(open.ContainerPort)) {
		t.Errorf("admin.metrics_listen has port %s, the container %d", got, open.ContainerPort)
	}
	if listen, _ := config["admin.metrics_listen"].(string); !strings.HasPrefix(listen, "0.0.0.0:") {
		t.Errorf("admin.metrics_listen is %s: nobody outside the pod reaches it", listen)
	}
	for path, probe := range map[string]*core.Probe{"/healthz": relay.LivenessProbe, "/readyz": relay.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != open.Name {
			t.Errorf("probe %s: %+v", path, probe.HTTPGet)
		}
	}
	endpoint := c.Monitor.Spec.PodMetricsEndpoints[0]
	if len(c.Monitor.Spec.PodMetricsEndpoints) != 1 || *endpoint.Port != open.Name || endpoint.Path != "/metrics" {
		t.Errorf("PodMonitor: %+v", endpoint)
	}
	if in := c.Network.Spec.Ingress; len(in) != 1 || len(in[0].Ports) != 1 || in[0].Ports[0].Port.StrVal != open.Name || len(in[0].From) == 0 {
		t.Errorf("NetworkPolicy lets in %+v", in)
	}
	out := map[string]bool{}
	for _, rule := range c.Network.Spec.Egress {
		for _, p := range rule.Ports {
			out[p.Port.String()] = true
		}
	}
	urls, ok := config["sink.rabbitmq.url"].([]any)
	if !ok || len(urls) != 1 {
		t.Fatalf("sink.rabbitmq.url is %v", config["sink.rabbitmq.url"])
	}
	for _, want := range []string{"53", port(t, config["source.url"]), port(t, urls[0])} {
		if !out[want] {
			t.Errorf("NetworkPolicy does not let out to port %s", want)
		}
	}
	if len(c.Network.Spec.PolicyTypes) != 2 {
		t.Errorf("NetworkPolicy is about %v", c.Network.Spec.PolicyTypes)
	}
}

// Every selector finds the pods of the Deployment.
func TestSelectorsFindThePods(t *testing.T) {
	t.Parallel()
	c := built(t)
	pod := labels.Set(c.Deployment.Spec.Template.Labels)
	for what, s := range map[string]*meta.LabelSelector{
		"Deployment": c.Deployment.Spec.Selector, "PodDisruptionBudget": c.Budget.Spec.Selector, "NetworkPolicy": &c.Network.Spec.PodSelector,
		"PodMonitor":    &c.Monitor.Spec.Selector,
		"anti-affinity": c.Deployment.Spec.Template.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector,
	} {
		selector, err := meta.LabelSelectorAsSelector(s)
		must(t, err)
		if selector.Empty() || !selector.Matches(pod) {
			t.Errorf("%s selects %s, the pods have %s", what, selector, pod)
		}
	}
}

// The pod meets the restricted Pod Security Standard, and its root cannot be written.
func TestPodIsRestricted(t *testing.T) {
	t.Parallel()
	c := built(t)
	relay, pod := c.relay(t), &c.Deployment.Spec.Template.Spec
	p, s := pod.SecurityContext, relay.SecurityContext
	if !*p.RunAsNonRoot || *p.RunAsUser == 0 || p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("pod: %+v", p)
	}
	if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
		t.Errorf("container: %+v", s)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || relay.Ports[0].HostPort != 0 || s.Privileged != nil {
		t.Error("the pod uses its node")
	}
}

// A stop has the time that it needs, a rollout never leaves the slot to nobody, and Go knows its
// limit.
func TestPodsLifeAndLimits(t *testing.T) {
	t.Parallel()
	c := built(t)
	relay, spec := c.relay(t), &c.Deployment.Spec
	config := configuration(t, "deploy/kubernetes/"+relayConfig)
	if got, least := time.Duration(*spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second, duration(t, config["delivery.shutdown_grace"])+10*time.Second; got < least {
		t.Errorf("terminationGracePeriodSeconds is %s, want %s or more", got, least)
	}
	probe := relay.ReadinessProbe
	unready := duration(t, config["delivery.shutdown_grace"]) + time.Duration(probe.PeriodSeconds*probe.FailureThreshold)*time.Second
	if wait := time.Duration(spec.MinReadySeconds) * time.Second; wait <= unready || 4*wait > time.Duration(*spec.ProgressDeadlineSeconds)*time.Second {
		t.Errorf("minReadySeconds is %s: a new leader that is not ready is seen after %s, and a rollout has %d s", wait, unready, *spec.ProgressDeadlineSeconds)
	}
	update := spec.Strategy.RollingUpdate
	if *spec.Replicas != 2 || update.MaxUnavailable.IntVal != 0 || update.MaxSurge.IntVal != 1 {
		t.Errorf("%d replicas, %+v", *spec.Replicas, update)
	}
	if c.Budget.Spec.MaxUnavailable.IntVal != 1 || *c.Budget.Spec.UnhealthyPodEvictionPolicy != policy.AlwaysAllow {
		t.Errorf("budget: %+v", c.Budget.Spec)
	}
	if !slices.Equal(relay.Args, []string{"run", "--hold-on-fatal"}) || len(relay.Command) > 0 {
		t.Errorf("it runs %v %v", relay.Command, relay.Args)
	}
	isCommand(t, relay.Args)
	limit := relay.Resources.Limits.Memory().Value()
	if soft := bytesOf(t, env(relay, "GOMEMLIMIT")); soft > limit*85/100 || soft < limit/2 {
		t.Errorf("GOMEMLIMIT is %d, the limit %d", soft, limit)
	}
	if relay.Resources.Requests.Cpu().IsZero() || relay.Resources.Requests.Memory().IsZero() || !relay.Resources.Limits.Cpu().IsZero() {
		t.Errorf("resources: %+v", relay.Resources)
	}
}
