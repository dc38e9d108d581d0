// Two sides in turns, medians, and the first side against itself.
package main

import (
	"context"
	"fmt"
	"slices"
)

// side is one run of one side.
type side func(context.Context) (float64, error)

// series is what the turns found.
type series struct {
	base, ours []float64
	void       bool // the A/A stayed too large
}

// turns runs base, ours, base, ours, …, base: so many pairs and one more of base, so that base can
// be held against itself. A series whose A/A is too large is thrown away and run again, a bounded
// number of times.
func (s *stand) turns(ctx context.Context, pairs int, base, ours side, show func(float64) string) (series, error) {
	for try := 1; ; try++ {
		var p series
		for i := range pairs + 1 {
			b, err := base(ctx)
			if err != nil {
				return p, fmt.Errorf("baseline: %w", err)
			}
			p.base = append(p.base, b)
			if i == pairs {
				s.say("    baseline %s", show(b))
				break
			}
			o, err := ours(ctx)
			if err != nil {
				return p, err
			}
			p.ours = append(p.ours, o)
			s.say("    baseline %s, relay %s", show(b), show(o))
		}
		if p.aa() <= maxAA || s.opt.quick {
			return p, nil
		}
		s.say("    void: baseline against itself %.1f %% (run %d of %d)", 100*p.aa(), try, s.size.tries)
		if try == s.size.tries || s.past(lastRepeat) {
			p.void = true
			return p, nil
		}
	}
}

// aa is the baseline against itself by the row's own measure: the median of its odd runs against
// that of its even ones.
func (p series) aa() float64 {
	var halves [2][]float64
	for i, v := range p.base {
		halves[i%2] = append(halves[i%2], v)
	}
	a, b := median(halves[0]), median(halves[1])
	return max(a, b)/min(a, b) - 1
}

// result is the series as a row of the report.
func (p series) result(name, unit string, show func(float64) string) result {
	base, ours := median(p.base), median(p.ours)
	return result{
		name: name, unit: unit, value: ours / base, baseMedian: base,
		ours: spread(p.ours, show), base: spread(p.base, show), aa: p.aa(), void: p.void, pairs: len(p.ours),
	}
}

// spread is a median with the smallest and the largest value.
func spread(v []float64, show func(float64) string) string {
	if len(v) == 1 {
		return show(v[0])
	}
	return fmt.Sprintf("%s (%s … %s)", show(median(v)), show(slices.Min(v)), show(slices.Max(v)))
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile is the value that the share q of the values does not exceed; between two, their mean for
// the median.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(v))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}
