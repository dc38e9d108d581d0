//go:build testall

package dashboards

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// This file asks Prometheus what Grafana would, with values for its variables.

// answer is what one query of a panel has brought.
type answer struct {
	Now  model.Vector
	Over model.Matrix
}

var errEmpty = errors.New("is empty")

// ask sends a query of a panel as Grafana would; nothing, or nothing that is a number, is an error.
func (s *stage) ask(q target, v values) (answer, error) {
	expr, err := v.expand(q.Expr)
	if err != nil {
		return answer{}, err
	}
	var a answer
	var value model.Value
	if q.Instant {
		value, err = s.metrics.Query(s.Context(), expr, v.end)
	} else {
		value, err = s.metrics.QueryRange(s.Context(), expr, v1.Range{Start: v.start, End: v.end, Step: step})
	}
	if err != nil {
		return a, err
	}
	numbers := 0
	count := func(n model.SampleValue) {
		if !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) {
			numbers++
		}
	}
	switch value := value.(type) {
	case model.Vector:
		a.Now = value
		for _, sample := range value {
			count(sample.Value)
		}
	case model.Matrix:
		a.Over = value
		for _, series := range value {
			for _, pair := range series.Values {
				count(pair.Value)
			}
		}
	default:
		return a, fmt.Errorf("query %s gives a %s", expr, value.Type())
	}
	if numbers == 0 {
		return a, fmt.Errorf("query %s %w: %d series without a number", expr, errEmpty, len(a.Now)+len(a.Over))
	}
	return a, nil
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

// shown is the number that a panel shows at a time, of the series whose labels have these values
// ("ack", "destination unroutable").
func (s *stage) shown(all []*board, title, refID, labels string, v values) (float64, error) {
	for _, b := range all {
		for _, p := range b.Panels {
			if p.Title != title {
				continue
			}
			for _, q := range p.Targets {
				if q.RefID != refID {
					continue
				}
				a, err := s.ask(q, v)
				if err != nil {
					return 0, err
				}
				return pick(a.Now, labels)
			}
		}
	}
	return 0, fmt.Errorf("there is no panel %s with a query %s", title, refID)
}

func pick(now model.Vector, labels string) (float64, error) {
	for _, sample := range now {
		var values []string
		for _, name := range []model.LabelName{"outcome", "class", "reason", "result", "slot"} {
			if value, ok := sample.Metric[name]; ok {
				values = append(values, string(value))
			}
		}
		if labels == "" && len(now) == 1 || strings.Join(values, " ") == labels {
			return float64(sample.Value), nil
		}
	}
	return 0, fmt.Errorf("no series %q in %v", labels, now)
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
