package deploycheck

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// dataSources and providers are Grafana's provisioning files as its documentation describes them: what is not here is an error.
type dataSources struct {
	APIVersion  int `json:"apiVersion"`
	Datasources []struct {
		Name      string         `json:"name"`
		UID       string         `json:"uid"`
		Type      string         `json:"type"`
		Access    string         `json:"access"`
		URL       string         `json:"url"`
		IsDefault bool           `json:"isDefault"`
		Editable  bool           `json:"editable"`
		JSONData  map[string]any `json:"jsonData"`
	} `json:"datasources"`
}

type providers struct {
	APIVersion int `json:"apiVersion"`
	Providers  []struct {
		Name                  string `json:"name"`
		OrgID                 int    `json:"orgId"`
		Folder                string `json:"folder"`
		Type                  string `json:"type"`
		DisableDeletion       bool   `json:"disableDeletion"`
		AllowUIUpdates        bool   `json:"allowUiUpdates"`
		UpdateIntervalSeconds int    `json:"updateIntervalSeconds"`
		Options               struct {
			Path                      string `json:"path"`
			FoldersFromFilesStructure bool   `json:"foldersFromFilesStructure"`
		} `json:"options"`
	} `json:"providers"`
}

// provisioned decodes every file of one of Grafana's provisioning directories.
func provisioned[T any](t *testing.T, dir string) (all []T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/grafana/provisioning", dir, "*.yaml"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		var one T
		if err := yaml.UnmarshalStrict(text, &one); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		t.Fatalf("nothing is provisioned in %s", dir)
	}
	return all
}

// Grafana of compose.yaml asks the Prometheus of compose.yaml, and finds the dashboards where they are mounted.
func TestGrafanaFindsPrometheusAndDashboards(t *testing.T) {
	t.Parallel()
	project := composed(t, "kafka")
	sources := provisioned[dataSources](t, "datasources")
	if len(sources) != 1 || len(sources[0].Datasources) != 1 || sources[0].APIVersion != 1 {
		t.Fatalf("data sources: %+v", sources)
	}
	source := sources[0].Datasources[0]
	prometheus := project.Services["prometheus"]
	target := prometheus.Ports[0].Target
	if source.Type != "prometheus" || !strings.HasPrefix(source.URL, "http://prometheus:") || port(t, source.URL) != "9090" || target != 9090 || !source.IsDefault {
		t.Errorf("the data source is %+v, Prometheus listens on %d", source, target)
	}
	boards, err := filepath.Glob(filepath.Join(root, "deploy/grafana/*.json"))
	must(t, err)
	if len(boards) < 2 {
		t.Errorf("dashboards: %v", boards)
	}
	for _, p := range provisioned[providers](t, "dashboards") {
		for _, one := range p.Providers {
			mounted := ""
			for _, v := range project.Services["grafana"].Volumes {
				if v.Target == one.Options.Path {
					mounted = v.Source
				}
			}
			if one.Type != "file" || filepath.Base(mounted) != "grafana" {
				t.Errorf("provider %s reads %s, where %q is mounted", one.Name, one.Options.Path, mounted)
			}
		}
	}
}

// Prometheus of compose.yaml finds its rules, and asks relays that are there on their port.
func TestPrometheusFindsRulesAndRelays(t *testing.T) {
	t.Parallel()
	var config struct {
		RuleFiles     []string `json:"rule_files"`
		ScrapeConfigs []struct {
			StaticConfigs []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
			DNSSDConfigs []struct {
				Names []string `json:"names"`
				Port  int      `json:"port"`
			} `json:"dns_sd_configs"`
		} `json:"scrape_configs"`
	}
	must(t, yaml.Unmarshal([]byte(read(t, "deploy/prometheus/prometheus.yml")), &config))
	for _, file := range config.RuleFiles {
		read(t, filepath.Join("deploy/prometheus", filepath.Base(file)))
	}
	if len(config.RuleFiles) == 0 {
		t.Error("Prometheus reads no rules")
	}
	var targets []string
	for _, scrape := range config.ScrapeConfigs {
		for _, static := range scrape.StaticConfigs {
			targets = append(targets, static.Targets...)
		}
		for _, dns := range scrape.DNSSDConfigs {
			for _, name := range dns.Names {
				targets = append(targets, fmt.Sprintf("%s:%d", name, dns.Port))
			}
		}
	}
	project := composed(t, "kafka")
	for _, target := range targets {
		name, number, _ := strings.Cut(target, ":")
		s, ok := project.Services[name]
		if !ok || len(s.Ports) == 0 || fmt.Sprint(s.Ports[0].Target) != number {
			t.Errorf("Prometheus asks %s, which is no service at that port", target)
		}
	}
	if !slices.Contains(targets, "relay:9464") {
		t.Errorf("Prometheus asks %v, not the relay", targets)
	}
}
