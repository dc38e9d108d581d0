package dashboards

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// names are those of the metrics that were registered.
type names map[string]bool

var fqName = regexp.MustCompile(`fqName: "(\w+)"`)

func (n names) Register(c prometheus.Collector) error {
	all := make(chan *prometheus.Desc, 100)
	c.Describe(all)
	close(all)
	for desc := range all {
		n[fqName.FindStringSubmatch(desc.String())[1]] = true
	}
	return nil
}

func (n names) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = n.Register(c) // has no errors
	}
}

func (names) Unregister(prometheus.Collector) bool { return false }

// docs/metrics.md lists the metrics that an inbox registers. The dashboard asks for each of them.
func TestMetricsOfConsumers(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1/") // does not connect
	must(t, err)
	defer pool.Close()
	registered := names{}
	_, err = inbox.New(inbox.Config{
		Service: "mails", Pool: pool, Registerer: registered,
		Handler: func(context.Context, pgx.Tx, inbox.Message) error { return nil },
	})
	must(t, err)
	want := slices.Sorted(maps.Keys(registered))

	used := regexp.MustCompile(`\bcdc_relay_inbox_\w+`)
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	in := func(text string) []string {
		found := names{}
		for _, name := range used.FindAllString(text, -1) {
			found[suffix.ReplaceAllString(name, "")] = true
		}
		return slices.Sorted(maps.Keys(found))
	}
	read := func(file string) string {
		text, err := os.ReadFile("../../" + file)
		must(t, err)
		return string(text)
	}
	_, section, _ := strings.Cut(read("docs/metrics.md"), "\n## Consumers\n")
	table, _, _ := strings.Cut(section, "\n### ")
	for where, text := range map[string]string{"metrics.md": table, "the dashboard": read("deploy/grafana/consumer-processing.json")} {
		if got := in(text); !slices.Equal(got, want) {
			t.Errorf("%s has %q, registered are %q", where, got, want)
		}
	}
}
