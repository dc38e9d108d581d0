package deploycheck

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1" //nolint:depguard // types of the operator, no metrics
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const chartFolder = "deploy/helm/cdc-relay"

// rewrite is for what is generated of the chart and of the relay.
var rewrite = flag.Bool("rewrite", false, "write deploy/kubernetes and the schema of the chart's values again")

const rewriteCommand = "run: GOWORK=off go test -C tools/deploycheck -run 'TestManifests|TestSchemaOfValues' -rewrite"

// objects are what the chart makes of values.
type objects struct {
	accounts    []core.ServiceAccount
	configs     []core.ConfigMap
	deployments []apps.Deployment
	budgets     []policy.PodDisruptionBudget
	networks    []networking.NetworkPolicy
	monitors    []monitoring.PodMonitor
	rules       []monitoring.PrometheusRule
	services    []core.Service
	jobs        []batch.Job
	pods        []core.Pod
	kinds       map[string]int
}

// render is what Helm makes of the chart with these values: text by template.
func render(release string, values map[string]any) (map[string]string, error) {
	loaded, err := loader.Load(filepath.Join(root, chartFolder))
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: release, Namespace: "outbox", IsInstall: true, Revision: 1}
	all, err := util.ToRenderValues(loaded, values, options, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(loaded, all)
}

// decode takes each object by the published type of its kind: a field that the type does not have
// is an error, and so is a kind that is not known here.
func decode(t *testing.T, texts map[string]string) *objects {
	t.Helper()
	o := &objects{kinds: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(texts[name], -1) {
			var head meta.TypeMeta
			must(t, yaml.Unmarshal([]byte(document), &head))
			if head.Kind == "" {
				if strings.TrimSpace(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(document, "")) != "" {
					t.Errorf("%s: an object without a kind:\n%s", name, document)
				}
				continue
			}
			o.kinds[head.Kind]++
			if err := o.add(head.APIVersion+" "+head.Kind, []byte(document)); err != nil {
				t.Errorf("%s: %v\n%s", name, err, document)
			}
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return o
}

func (o *objects) add(kind string, document []byte) error {
	switch kind {
	case "v1 ServiceAccount":
		return strictlyAppend(document, &o.accounts)
	case "v1 ConfigMap":
		return strictlyAppend(document, &o.configs)
	case "apps/v1 Deployment":
		return strictlyAppend(document, &o.deployments)
	case "policy/v1 PodDisruptionBudget":
		return strictlyAppend(document, &o.budgets)
	case "networking.k8s.io/v1 NetworkPolicy":
		return strictlyAppend(document, &o.networks)
	case "monitoring.coreos.com/v1 PodMonitor":
		return strictlyAppend(document, &o.monitors)
	case "monitoring.coreos.com/v1 PrometheusRule":
		return strictlyAppend(document, &o.rules)
	case "v1 Service":
		return strictlyAppend(document, &o.services)
	case "batch/v1 Job":
		return strictlyAppend(document, &o.jobs)
	case "v1 Pod":
		return strictlyAppend(document, &o.pods)
	}
	return errors.New("an object of kind " + kind + ", which this test does not know")
}

func strictlyAppend[T any](document []byte, to *[]T) error {
	var one T
	if err := strictly(document, &one); err != nil {
		return err
	}
	*to = append(*to, one)
	return nil
}

// valuesOf are the values in a file of the chart's examples, with others over them.
func valuesOf(t *testing.T, file, over string) map[string]any {
	t.Helper()
	base := common.Values{}
	if file != "" {
		var err error
		base, err = common.ReadValues([]byte(read(t, file)))
		must(t, err)
	}
	others, err := common.ReadValues([]byte(over))
	must(t, err)
	return loader.MergeMaps(base, others)
}

// made are the objects of values. Helm's linter has nothing against those of the examples.
func made(t *testing.T, release, file, over string) *objects {
	t.Helper()
	if over == "" {
		for _, m := range lint.RunAll(filepath.Join(root, chartFolder), valuesOf(t, file, over), "outbox").Messages {
			if m.Severity > support.InfoSev {
				t.Error(m)
			}
		}
	}
	texts, err := render(release, valuesOf(t, file, over))
	must(t, err)
	if notes := texts["cdc-relay/templates/NOTES.txt"]; !strings.Contains(notes, "helm test "+release+" ") || strings.Contains(notes, "<no value>") {
		t.Errorf("what Helm says at the end:\n%s", notes)
	}
	return decode(t, texts)
}

// What a value may not be is refused by its name, by the schema or by a template, before anything
// reaches the cluster.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	const whole = "config: {source: {url: postgres://relay@db/shop}, sink: {rabbitmq: {url: amqps://mq/}}}\n"
	const db = "{url: postgres://db/shop}"
	for _, c := range []struct{ values, want string }{
		// all that the schema has against values is said at once
		{`
replica: 2
replicas: two
enabled: false
fullnameOverride: 1x
nameOverride: a b
image: {tag: 'a b', digest: sha256:12}
files: [{secret: a, configMap: b}, {secret: a, items: [{key: a}]}, {name: a}]
resources: {limits: {memory: 256M}}
networkPolicy: {metricsFrom: [{namespace: monitoring}]}
init: {enabled: true, url: postgres://db/shop, args: [outbox-table]}
config: {source: {urll: postgres://relay@db/shop}, sink: {rabbitmq: {exchang: a}}, delivery: {ordering: keys}, admin: null}`, `
additional properties 'replica' not allowed
at '/replicas': got string, want integer
at '/enabled'
at '/fullnameOverride'
at '/nameOverride'
at '/image/tag'
at '/image/digest'
at '/files/0'
at '/files/1/items/0': missing property 'path'
additional properties 'name' not allowed
at '/resources/limits/memory'
additional properties 'namespace' not allowed
at '/init/args/0'
at '/config/source': additional properties 'urll' not allowed
at '/config/sink/rabbitmq': additional properties 'exchang' not allowed
at '/config/delivery/ordering'
missing property 'admin'`},
		{"config: {source: " + db + ", sink: {rabbitmq: {}, kafka: {}}}", "at '/config/sink'"},

		{"", "config.source.url is missing"},
		{"config: {source: {url: postgres://relay@db/shop}}", "config.sink must name one broker"},
		{"init: {enabled: true}\n" + whole, "init.url is missing"},
		{"init: {url: 'postgres://owner:secret@db/shop'}\n" + whole, "init.url has a password in it"},
		{"env: [{name: OTEL_SERVICE_NAME, value: a}]\nconfig: {sink: {kafka: {}}}", "config.source.url is missing"},
		{"config: {source: {password: secret, url: postgres://db/shop}, sink: {kafka: {}}}", "config.source.password is the secret itself"},
		{"config: {source: {url: host=db password=secret}, sink: {kafka: {}}}", "config.source.url has a password in it"},
		{"config: {source: " + db + ", sink: {rabbitmq: {password: guest}}}", "config.sink.rabbitmq.password is the secret itself"},
		{"config: {source: " + db + ", sink: {rabbitmq: {url: ['amqps://a/', 'amqps://${USER}:b@c/']}}}", "config.sink.rabbitmq.url has a password in it"},
		{"config: {source: " + db + ", sink: {rabbitmq: {oauth: {client_secret: a}}}}", "config.sink.rabbitmq.oauth.client_secret is the secret itself"},
		{"config: {source: " + db + ", sink: {kafka: {sasl: {password: a}}}}", "config.sink.kafka.sasl.password is the secret itself"},
		{"config: {source: " + db + ", sink: {kafka: {sasl: {oauth: {client_secret: a}}}}}", "config.sink.kafka.sasl.oauth.client_secret is the secret itself"},
		{"config: {source: " + db + ", sink: {kafka: {}}, admin: {tokens: [{name: a, role: read, value: b}]}}", "config.admin.tokens[0].value is the secret itself"},
		{"config: {source: " + db + ", sink: {kafka: {}}, admin: {metrics_listen: 'localhost:8464'}}", "config.admin.metrics_listen must be an address with a port"},
		{"config: {source: " + db + ", sink: {kafka: {}}, admin: {metrics_listen: ''}}", "config.admin.metrics_listen must be an address with a port"},
		{"console: {enabled: true}\nconfig: {source: " + db + ", sink: {kafka: {}}, admin: {listen: ''}}", "config.admin.listen must be an address with a port"},
		{"config: {source: " + db + ", sink: {kafka: {}}, delivery: {shutdown_grace: 1m30s}}", "config.delivery.shutdown_grace is 1m30s: write it in whole seconds or minutes"},
	} {
		_, err := render("cdc-relay", valuesOf(t, "", c.values))
		if err == nil {
			t.Errorf("it takes %s", c.values)
			continue
		}
		for want := range strings.SplitSeq(strings.TrimSpace(c.want), "\n") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s\n%v, want %q", c.values, err, want)
			}
		}
	}
}

// A release that cannot name a Service says so, unless another name is given.
func TestChartNames(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"1x", "a.b"} {
		if _, err := render(release, valuesOf(t, chartFolder+"/examples/kafka.yaml", "")); err == nil || !strings.Contains(err.Error(), "set fullnameOverride") {
			t.Errorf("release %s: %v", release, err)
		}
		if _, err := render(release, valuesOf(t, chartFolder+"/examples/kafka.yaml", "fullnameOverride: x")); err != nil {
			t.Errorf("release %s: %v", release, err)
		}
	}
}

// The schema of the values has the relay's own schema of its configuration in it, on one line.
func TestSchemaOfValues(t *testing.T) {
	t.Parallel()
	out, err := runs(t, nil, relay, "config", "schema")
	must(t, err)
	var schema map[string]any
	must(t, json.Unmarshal([]byte(out), &schema))
	delete(schema, "$schema")
	delete(schema, "title")
	withoutProse(schema)
	schema["required"] = []string{"source", "sink", "delivery", "admin"}
	line, err := json.Marshal(schema)
	must(t, err)
	file := filepath.Join(chartFolder, "values.schema.json")
	text := read(t, file)
	place := regexp.MustCompile(`(?m)^    "config": .*,$`)
	if len(place.FindAllString(text, -1)) != 1 {
		t.Fatalf("%s has no line for config", file)
	}
	generated(t, file, place.ReplaceAllLiteralString(text, `    "config": `+string(line)+","))
}

// withoutProse takes out what says nothing about whether a value is allowed.
func withoutProse(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if _, property := value.(map[string]any); (name == "description" || name == "default") && !property {
				delete(v, name)
				continue
			}
			withoutProse(value)
		}
	case []any:
		for _, value := range v {
			withoutProse(value)
		}
	}
}

// generated compares a file with what it must be, or writes it.
func generated(t *testing.T, name, want string) {
	t.Helper()
	if *rewrite {
		must(t, os.WriteFile(filepath.Join(root, name), []byte(want), 0o644))
	}
	if read(t, name) != want {
		t.Errorf("%s is not what it is made of: %s", name, rewriteCommand)
	}
}

// What deploy/kubernetes has is what the chart makes, for those who do not use Helm.
func TestManifests(t *testing.T) {
	t.Parallel()
	const edits = `# Made of the Helm chart in deploy/helm, for kubectl apply. Prefer the chart: it changes all places of a value at once.
`
	relays := []string{"serviceaccount", "configmap", "networkpolicy", "poddisruptionbudget", "init", "deployment"}
	const plain = "init: {enabled: true, hook: false}"
	want := map[string]string{}
	for _, broker := range []string{"rabbitmq", "kafka"} {
		want[broker+".yaml"] = edits + `#
#   kubectl apply -f deploy/kubernetes/` + broker + `.yaml
#
# Before: create the Secret and the ConfigMap with the CAs (docs/running.md#kubernetes). Change here: the addresses in the ConfigMap and
# in the Job, their ports in the NetworkPolicy with the namespace of Prometheus, and the image. The Job needs the Secret cdc-relay-owner
# with the key password; take the Job out where deploy/sql has made the tables. After a change of the ConfigMap:
# kubectl rollout restart deployment/cdc-relay
#
# Apply this file and not the folder: rabbitmq.yaml and kafka.yaml have the same names. A Job cannot be changed, so before each further
# apply: kubectl delete job cdc-relay-init --ignore-not-found
` + manifest(t, valuesOf(t, chartFolder+"/examples/"+broker+".yaml", plain), relays...)
	}
	want["monitoring.yaml"] = edits + `#
#   kubectl apply -f deploy/kubernetes/monitoring.yaml
#
# It needs the Prometheus operator, and Grafana's chart with its sidecar for the dashboards. Change here: the labels of PodMonitor and
# PrometheusRule to those that your Prometheus selects.
` + manifest(t, valuesOf(t, chartFolder+"/examples/rabbitmq.yaml", "{podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboards: {enabled: true}}"),
		"podmonitor", "prometheusrule", "dashboards")
	for name, text := range want {
		generated(t, "deploy/kubernetes/"+name, text)
	}
	there, err := filepath.Glob(filepath.Join(root, "deploy/kubernetes/*"))
	must(t, err)
	for _, file := range there {
		if want[filepath.Base(file)] == "" {
			t.Errorf("%s is no manifest of the chart", file)
		}
	}
}

// manifest are the templates' objects in this order.
func manifest(t *testing.T, values map[string]any, templates ...string) string {
	t.Helper()
	texts, err := render("cdc-relay", values)
	must(t, err)
	whole := ""
	for _, name := range templates {
		text := strings.TrimSpace(texts["cdc-relay/templates/"+name+".yaml"])
		if text == "" {
			t.Fatalf("the chart makes nothing of %s", name)
		}
		whole += "---\n" + strings.TrimPrefix(text, "---\n") + "\n"
	}
	decode(t, map[string]string{"manifest.yaml": whole})
	return regexp.MustCompile(`(?m) +$|^ +(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n`).ReplaceAllString(whole, "")
}

// The archive of a release holds the chart, with the alerts and dashboards in place of the links to
// them, and is the same each time.
func TestChartArchive(t *testing.T) {
	t.Parallel()
	folder, err := loader.Load(filepath.Join(root, chartFolder))
	must(t, err)
	if v := folder.Metadata; v.Version != v.AppVersion {
		t.Errorf("the chart has version %s, the image %s", v.Version, v.AppVersion)
	}
	var archives []string
	for range 2 {
		dir := t.TempDir()
		if out, err := runs(t, nil, "bash", filepath.Join(root, "scripts/chart.sh"), dir); err != nil {
			t.Fatalf("chart.sh: %v: %s", err, out)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		must(t, err)
		if len(files) != 1 || filepath.Base(files[0]) != "cdc-relay-"+folder.Metadata.Version+".tgz" {
			t.Fatalf("chart.sh makes %v", files)
		}
		text, err := os.ReadFile(files[0])
		must(t, err)
		archives = append(archives, string(text))
		packed, err := loader.Load(files[0])
		must(t, err)
		content := map[string]string{}
		for _, f := range packed.Raw {
			content[f.Name] = string(f.Data)
		}
		for _, f := range folder.Raw {
			if content[f.Name] != string(f.Data) || len(f.Data) == 0 {
				t.Errorf("%s is not in the archive as it is in the folder", f.Name)
			}
		}
		if len(packed.Raw) != len(folder.Raw) {
			t.Errorf("%d files in the archive, %d in the folder", len(packed.Raw), len(folder.Raw))
		}
	}
	if archives[0] != archives[1] {
		t.Error("two archives of one chart differ")
	}
}
