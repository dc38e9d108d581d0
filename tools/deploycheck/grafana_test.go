package deploycheck

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

// dataSources and providers are Grafana's provisioning files as its documentation describes them:
// what is not here is an error.
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
		if err := strictly(text, &one); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		t.Fatalf("nothing is provisioned in %s", dir)
	}
	return all
}

// Grafana of compose.yaml asks the Prometheus of compose.yaml, and finds the dashboards where they
// are mounted.
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
	if every := fmt.Sprintf("\n  scrape_interval: %v ", source.JSONData["timeInterval"]); !strings.Contains(read(t, "deploy/compose/prometheus.yml"), every) {
		t.Errorf("the data source's timeInterval %v is not the scrape_interval of compose's Prometheus", source.JSONData["timeInterval"])
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

// Prometheus of compose.yaml accepts its configuration with the rules, where they are mounted, and
// asks relays on their port, one for each job: none of them has a standby, and none is missed. It
// asks the services of the shop on theirs.
func TestPrometheusFindsRulesAndRelays(t *testing.T) {
	t.Parallel()
	project, dir := composed(t, "kafka", "shop"), t.TempDir()
	for _, v := range project.Services["prometheus"].Volumes {
		if v.Type == types.VolumeTypeBind {
			text, err := os.ReadFile(v.Source)
			must(t, err)
			if filepath.Dir(v.Target) != "/etc/prometheus" {
				t.Errorf("%s is mounted at %s", v.Source, v.Target)
			}
			must(t, os.WriteFile(filepath.Join(dir, filepath.Base(v.Target)), text, 0o644))
		}
	}
	file := filepath.Join(dir, "prometheus.yml")
	out, err := runs(t, nil, "promtool", "check", "config", "--lint-fatal", file)
	if err != nil || !strings.Contains(out, "1 rule files found") {
		t.Fatalf("promtool: %v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	var config struct {
		ScrapeConfigs []struct {
			Job           string `json:"job_name"`
			StaticConfigs []struct {
				Targets []string          `json:"targets"`
				Labels  map[string]string `json:"labels"`
			} `json:"static_configs"`
			DNSSDConfigs []struct {
				Names []string `json:"names"`
				Port  int      `json:"port"`
			} `json:"dns_sd_configs"`
			Relabel []struct {
				Label string `json:"target_label"`
				Value string `json:"replacement"`
			} `json:"relabel_configs"`
		} `json:"scrape_configs"`
	}
	must(t, yaml.Unmarshal(text, &config))
	asked, jobs := map[string]bool{}, map[string]bool{}
	for _, scrape := range config.ScrapeConfigs {
		jobs[scrape.Job] = true
		alone := false // for CdcRelayNoStandby
		for _, static := range scrape.StaticConfigs {
			alone = alone || static.Labels["relays"] == "one"
		}
		for _, relabel := range scrape.Relabel {
			alone = alone || relabel.Label == "relays" && relabel.Value == "one"
		}
		if !alone && scrape.Job != "shop" {
			t.Errorf("the job %s has one relay, and not the label that says so", scrape.Job)
		}
		for _, static := range scrape.StaticConfigs {
			for _, target := range static.Targets {
				asked[target] = true
			}
		}
		for _, dns := range scrape.DNSSDConfigs {
			for _, name := range dns.Names {
				asked[fmt.Sprintf("%s:%d", name, dns.Port)] = true
			}
		}
	}
	for name, s := range project.Services {
		if target := name + ":8464"; slices.ContainsFunc(s.Ports, func(p types.ServicePortConfig) bool { return p.Target == 8464 }) {
			if !asked[target] {
				t.Errorf("Prometheus does not ask %s: %v", target, asked)
			}
			delete(asked, target)
		}
		if target := name + ":8080"; s.Image == "cdc-relay-shop" {
			if !asked[target] {
				t.Errorf("Prometheus does not ask %s: %v", target, asked)
			}
			delete(asked, target)
		}
	}
	if !jobs["cdc-relay"] {
		t.Errorf("CdcRelayGone misses the job cdc-relay, and these are %v", jobs)
	}
	if len(asked) > 0 {
		t.Errorf("Prometheus asks %v, which are neither relays nor services of the shop", asked)
	}
}
