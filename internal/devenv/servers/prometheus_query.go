// Queries to a Prometheus, and its alerts.

package servers

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Query is what an expression is at a time; a warning is an error.
func (p *Prometheus) Query(ctx context.Context, promql string, at time.Time) (model.Value, error) {
	value, warnings, _, err := p.api.Query(ctx, promql, at)
	return answer(promql, value, warnings, err)
}

// QueryRange is what an expression was over a time; a warning is an error.
func (p *Prometheus) QueryRange(ctx context.Context, promql string, over v1.Range) (model.Value, error) {
	value, warnings, _, err := p.api.QueryRange(ctx, promql, over)
	return answer(promql, value, warnings, err)
}

// Series is one of those that an expression was over a time.
type Series struct {
	Labels map[string]string
	Values []float64 // at each step; NaN where it has none
}

// Over is what an expression was from a time on until another, at each step, in the order of the
// labels. That there is nothing is an error.
func (p *Prometheus) Over(ctx context.Context, promql string, from, to time.Time, step time.Duration) (all []Series, err error) {
	value, err := p.QueryRange(ctx, promql, v1.Range{Start: from, End: to, Step: step})
	if err != nil {
		return nil, err
	}
	matrix, ok := value.(model.Matrix)
	if !ok || len(matrix) == 0 {
		return nil, fmt.Errorf("query %s: %s is empty", promql, value.Type())
	}
	for _, stream := range matrix {
		s := Series{Labels: map[string]string{}, Values: slices.Repeat([]float64{math.NaN()}, int(to.Sub(from)/step)+1)}
		for name, label := range stream.Metric {
			s.Labels[string(name)] = string(label)
		}
		for _, point := range stream.Values {
			// its time is in milliseconds
			if i := int((point.Timestamp.Time().Sub(from) + step/2) / step); i < len(s.Values) {
				s.Values[i] = float64(point.Value)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

func answer(promql string, value model.Value, warnings v1.Warnings, err error) (model.Value, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("query %s: %w", promql, err)
	case len(warnings) > 0:
		return nil, fmt.Errorf("query %s: %s", promql, strings.Join(warnings, ", "))
	}
	return value, nil
}

// WaitScraped returns when every target was scraped by a scrape that began after the call, be there
// an answer or not: then a query sees what the relays knew at the call.
func (p *Prometheus) WaitScraped(ctx context.Context) error {
	called := time.Now()
	want := 0
	for _, bases := range p.opt.Jobs {
		want += len(bases)
	}
	err := processes.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		result, err := p.api.Targets(ctx)
		if err != nil {
			return false, fmt.Errorf("ask Prometheus for targets: %w", err)
		}
		old := slices.ContainsFunc(result.Active, func(target v1.ActiveTarget) bool { return !target.LastScrape.After(called) })
		return len(result.Active) == want && !old, nil
	})
	if err != nil {
		return fmt.Errorf("wait until Prometheus has scraped: %w: %s", err, processes.Tail(p.Log()))
	}
	return nil
}
