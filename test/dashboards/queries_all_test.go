//go:build testall

package dashboards

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// patience is how many scrapes a panel may need to show something.
const patience = 120

// stage is a relay and a consumer with load, and a Prometheus that scrapes both.
type stage struct {
	*stand.Stand
	metrics *servers.Prometheus
	start   time.Time
}

// Every query of every panel is run as Grafana would, with variables by All and by name: none is an
// error, and only those about relays that have stopped and about other hosts are empty. On Kafka
// what RabbitMQ alone has is 0, and not away.
func TestEveryQueryAnswers(t *testing.T) {
	pg, err := pgserver.Start(t.Context(), pgserver.Options{NoFsync: true, Settings: map[string]string{"max_slot_wal_keep_size": "256MB"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	s := &stage{Stand: stand.On(t, pg, stand.SharedKafka(t)), start: time.Now()}
	s.Retention = "mode: delete, keep: 0"
	jobs := map[string][]string{"shop": {s.Start().Admin()}, "mails": {startConsumer(t)}}
	s.metrics, err = servers.StartPrometheus(t.Context(), servers.PrometheusOptions{Interval: interval, Jobs: jobs})
	must(t, err)
	t.Cleanup(func() { must(t, s.metrics.Close()) })
	defer s.Load(50)()
	s.More(100)
	all := boards(t)
	// the relay runs and has one host
	want := []string{"Relays that have stopped A", "Ready on other hosts A"}
	for _, byName := range []bool{false, true} {
		var empty []string
		for range patience {
			if empty = s.empty(all, byName); slices.Equal(empty, want) {
				break
			}
			must(t, s.metrics.WaitScraped(s.Context()))
		}
		if !slices.Equal(empty, want) {
			t.Fatalf("empty are %q", empty)
		}
	}
}

// empty runs every query of every panel, and names those that bring nothing.
func (s *stage) empty(all []*board, byName bool) (names []string) {
	s.T.Helper()
	for _, b := range all {
		v, err := s.choose(b, byName, s.start, time.Now())
		if err != nil {
			return append(names, err.Error()) // a variable that offers nothing yet
		}
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				err := s.ask(q, v)
				if err != nil && !errors.Is(err, errEmpty) {
					s.T.Fatalf("%s, panel %q: %v", b.Title, p.Title, err)
				}
				if err != nil {
					names = append(names, p.Title+" "+q.RefID)
				}
			}
		}
	}
	return names
}

var errEmpty = errors.New("is empty")

// ask sends a query of a panel as Grafana would; nothing, or nothing that is a number, is errEmpty.
func (s *stage) ask(q target, v values) error {
	expr, err := v.expand(q.Expr)
	if err != nil {
		return err
	}
	var value model.Value
	if q.Instant {
		value, err = s.metrics.Query(s.Context(), expr, v.end)
	} else {
		value, err = s.metrics.QueryRange(s.Context(), expr, v1.Range{Start: v.start, End: v.end, Step: step})
	}
	if err != nil {
		return err
	}
	isNumber := func(n model.SampleValue) bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }
	switch value := value.(type) {
	case model.Vector:
		if slices.ContainsFunc(value, func(x *model.Sample) bool { return isNumber(x.Value) }) {
			return nil
		}
	case model.Matrix:
		for _, series := range value {
			if slices.ContainsFunc(series.Values, func(x model.SamplePair) bool { return isNumber(x.Value) }) {
				return nil
			}
		}
	default:
		return fmt.Errorf("query %s gives a %s", expr, value.Type())
	}
	return fmt.Errorf("query %s %w", expr, errEmpty)
}

var definition = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// choices are the values that a variable offers.
func (s *stage) choices(v variable, chosen values) (all []string, err error) {
	parts := definition.FindStringSubmatch(v.Definition)
	if parts == nil {
		return nil, fmt.Errorf("variable %s is defined as %s", v.Name, v.Definition)
	}
	series, err := chosen.expand(parts[1])
	if err != nil {
		return nil, err
	}
	value, err := s.metrics.Query(s.Context(), fmt.Sprintf("group by (%s) (%s)", parts[2], series), chosen.end)
	if err != nil {
		return nil, err
	}
	for _, sample := range value.(model.Vector) {
		all = append(all, string(sample.Metric[model.LabelName(parts[2])]))
	}
	return all, nil
}

// choose has the values of a dashboard's variables: for each of them all that it offers, by All or
// by naming them.
func (s *stage) choose(b *board, byName bool, start, end time.Time) (values, error) {
	v := values{chosen: map[string]string{}, start: start, end: end}
	for _, variable := range b.Templating.List {
		if variable.Type == "datasource" {
			continue
		}
		offered, err := s.choices(variable, v)
		if err != nil || len(offered) == 0 {
			return v, fmt.Errorf("variable %s of %s offers nothing: %w", variable.Name, b.Title, err)
		}
		v.chosen[variable.Name] = variable.AllValue
		if byName {
			v.chosen[variable.Name] = alternatives(offered)
		}
	}
	return v, nil
}

// values are what Grafana would put for variables, for the time range from start to end.
type values struct {
	chosen     map[string]string
	start, end time.Time
}

const (
	interval = time.Second // between scrapes
	step     = time.Second // of a query over a time
)

var used = regexp.MustCompile(`\$\{?(\w+)\}?`)

// expand is an expression as Grafana sends it.
func (v values) expand(expr string) (string, error) {
	var unknown []string
	expr = used.ReplaceAllStringFunc(expr, func(use string) string {
		name := used.FindStringSubmatch(use)[1]
		switch value, known := v.chosen[name]; {
		case known:
			return value
		case name == "__range":
			return fmt.Sprintf("%dms", v.end.Sub(v.start).Milliseconds())
		case name == "__rate_interval":
			return max(step+interval, 4*interval).String()
		default:
			unknown = append(unknown, name)
			return use
		}
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("there is no variable %s", strings.Join(unknown, ", "))
	}
	return expr, nil
}

// alternatives is how Grafana writes several values of a variable in a regular expression.
func alternatives(chosen []string) string {
	slices.Sort(chosen)
	quoted := make([]string, len(chosen))
	for i, value := range chosen {
		// once more, for the string of PromQL
		quoted[i] = strings.ReplaceAll(regexp.QuoteMeta(value), `\`, `\\`)
	}
	return "(" + strings.Join(quoted, "|") + ")"
}
