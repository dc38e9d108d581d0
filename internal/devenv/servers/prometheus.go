// A Prometheus with the shipped rules.

package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// PrometheusOptions says how to start a Prometheus.
type PrometheusOptions struct {
	Interval  time.Duration       // between scrapes, and between evaluations of the rules; 0: 1 s
	RuleFiles []string            // absolute paths
	Jobs      map[string][]string // what is scraped: name of a job to base URLs, as Relay.Admin
	Flags     []string            // more arguments, as --enable-feature=native-histograms
}

// Prometheus is a private server that scrapes relays, with fresh data. prometheus_query.go asks it.
// Its methods may be called from several goroutines, except Scrape and Close.
type Prometheus struct {
	opt    PrometheusOptions
	dir    string
	addr   string
	server *processes.Process
	api    v1.API
}

const prometheusMissing = "Prometheus (prometheus, promtool) is not installed; install it with: make deps (as root: apt-get install -y --no-install-recommends prometheus)"

// StartPrometheus starts a Prometheus on a free port of 127.0.0.1 and returns when it answers
// queries.
func StartPrometheus(ctx context.Context, opt PrometheusOptions) (*Prometheus, error) {
	bin, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, fmt.Errorf("find prometheus: %w: %s", err, prometheusMissing)
	}
	if opt.Interval == 0 {
		opt.Interval = time.Second
	}
	dir, err := processes.NewDir("prometheus")
	if err != nil {
		return nil, err
	}
	port, err := processes.UnusedPort()
	if err != nil {
		return nil, err
	}
	p := &Prometheus{opt: opt, dir: dir, addr: fmt.Sprintf("127.0.0.1:%d", port)}
	client, err := api.NewClient(api.Config{Address: p.URL(), Client: p.client()})
	if err != nil {
		return nil, fmt.Errorf("make client of Prometheus: %w", err)
	}
	p.api = v1.NewAPI(client)
	if err := p.configure(); err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, append([]string{
		"--config.file=" + p.configPath(), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=" + p.addr, "--web.enable-lifecycle",
	}, opt.Flags...)...)
	cmd.Dir, cmd.Env = dir, processes.EnvironWithout(processes.OwnerVariable)
	if p.server, err = processes.Start("Prometheus", cmd, p.logPath()); err != nil {
		return nil, err
	}
	err = p.server.Ready(ctx, func(ctx context.Context) bool {
		_, err := p.api.Buildinfo(ctx)
		return err == nil
	})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Scrape scrapes these jobs from now on instead of those before. What it knows of the others it
// keeps.
func (p *Prometheus) Scrape(ctx context.Context, jobs map[string][]string) error {
	p.opt.Jobs = jobs
	if err := p.configure(); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL()+"/-/reload", nil)
	if err != nil {
		return fmt.Errorf("reload Prometheus: %w", err)
	}
	resp, err := p.client().Do(req)
	if err != nil {
		return fmt.Errorf("reload Prometheus: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("reload Prometheus: %s: %s", resp.Status, processes.Tail(p.Log()))
	}
	return nil
}

// configure writes prometheus.yml.
func (p *Prometheus) configure() error {
	type (
		static struct {
			Targets []string `yaml:"targets"`
		}
		scrape struct {
			JobName       string   `yaml:"job_name"`
			StaticConfigs []static `yaml:"static_configs"`
		}
		config struct {
			Global        map[string]string `yaml:"global"`
			RuleFiles     []string          `yaml:"rule_files"`
			ScrapeConfigs []scrape          `yaml:"scrape_configs"`
		}
	)
	every := p.opt.Interval.String()
	c := config{
		Global:    map[string]string{"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
		RuleFiles: p.opt.RuleFiles,
	}
	for job, bases := range p.opt.Jobs {
		var s static
		for _, base := range bases {
			u, err := url.Parse(base)
			if err != nil || u.Host == "" {
				return fmt.Errorf("configure Prometheus: %q is no base URL of a relay", base)
			}
			s.Targets = append(s.Targets, u.Host)
		}
		c.ScrapeConfigs = append(c.ScrapeConfigs, scrape{JobName: job, StaticConfigs: []static{s}})
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("configure Prometheus: %w", err)
	}
	if err := os.WriteFile(p.configPath(), text, 0o644); err != nil {
		return fmt.Errorf("configure Prometheus: %w", err)
	}
	return nil
}

func (p *Prometheus) configPath() string { return filepath.Join(p.dir, "prometheus.yml") }
func (p *Prometheus) logPath() string    { return filepath.Join(p.dir, "log") }

// client keeps no connection: a test process must end without goroutines.
func (p *Prometheus) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext}}
}

// URL is the base URL of its server.
func (p *Prometheus) URL() string { return "http://" + p.addr }

// Log is everything the server has written.
func (p *Prometheus) Log() string { return processes.ReadLog(p.logPath()) }

// Close ends the server and removes its data.
func (p *Prometheus) Close() error {
	if p.server.Running() {
		if err := p.server.Kill(); err != nil {
			return err
		}
	}
	return processes.RemoveDir(p.dir)
}
