// The axis of a panel's values: its ticks, and how a value is written in the panel's unit.

package main

import (
	"math"
	"strconv"
)

// axis runs from the lowest tick to the highest one.
type axis struct {
	ticks       []float64
	logarithmic bool
}

// axisOf fits the lines. A linear one begins at 0 and has at most four steps, a logarithmic one
// has a tick at each power of ten, or of a hundred.
func axisOf(unit string, logarithmic bool, lines []series) axis {
	lowest, highest := math.Inf(1), 0.0
	for _, s := range lines {
		for _, v := range s.values {
			if v > 0 && !math.IsInf(v, 0) {
				lowest, highest = min(lowest, v), max(highest, v)
			}
		}
	}
	a := axis{logarithmic: logarithmic && highest > 0}
	if a.logarithmic {
		for power := math.Floor(math.Log10(lowest)); ; power++ {
			a.ticks = append(a.ticks, math.Pow(10, power))
			if n := len(a.ticks); n > 1 && a.ticks[n-1] >= highest {
				return a
			}
		}
	}
	step := stepOf(unit, highest)
	for i := 0; i == 0 || step*float64(i-1) < max(highest, step); i++ {
		a.ticks = append(a.ticks, step*float64(i))
	}
	return a
}

// share is where a value is between the ends, from 0 to 1. On a logarithmic axis 0 is at the lower
// end.
func (a axis) share(v float64) float64 {
	low, high := a.ticks[0], a.ticks[len(a.ticks)-1]
	if a.logarithmic {
		v, low, high = math.Log10(max(v, low)), math.Log10(low), math.Log10(high)
	}
	return (v - low) / (high - low)
}

// stepOf is the smallest round step of which four are enough.
func stepOf(unit string, highest float64) float64 {
	switch unit {
	case "bytes":
		step := 1.0
		for 4*step < highest {
			step *= 2
		}
		return step
	case "s":
		for _, step := range []float64{15, 30, 60, 120, 300, 600, 1800, 3600} {
			if highest > 20 && highest <= 4*step {
				return step
			}
		}
	}
	for step := 0.001; ; step *= 10 {
		for _, by := range []float64{1, 2, 5} {
			whole := unit != "short" || step*by >= 1
			if whole && highest <= 4*step*by {
				return step * by
			}
		}
	}
}

// amount writes a value in a unit of Grafana's.
func amount(unit string, v float64) string {
	of := func(v float64, unit string) string {
		return strconv.FormatFloat(math.Round(1000*v)/1000, 'f', -1, 64) + unit
	}
	switch {
	case v == 0:
		return "0"
	case unit == "s" && v < 1:
		return of(1000*v, " ms")
	case unit == "s" && math.Mod(v, 60) != 0:
		return of(v, " s")
	case unit == "s":
		return of(v/60, " min")
	case unit == "bytes":
		names := []string{" B", " KiB", " MiB", " GiB", " TiB"}
		for v >= 1024 && len(names) > 1 {
			v, names = v/1024, names[1:]
		}
		return of(v, names[0])
	case unit == "eps" || unit == "cps" || unit == "mps":
		return of(v, "/s")
	case v >= 1000:
		return of(v/1000, "k")
	}
	return of(v, "")
}
