package main

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// This file writes numbers with their units.

// write is a value as a reader wants it.
func write(unit string, v float64, decimals *int, end time.Time) string {
	if math.IsNaN(v) {
		return "–"
	}
	switch unit {
	case "s":
		return seconds(v, decimals)
	case "bytes":
		return scaled(v, 1024, []string{" B", " KiB", " MiB", " GiB", " TiB"}, decimals)
	case "binBps":
		return scaled(v, 1024, []string{" B/s", " KiB/s", " MiB/s", " GiB/s"}, decimals)
	case "eps", "cps", "mps":
		return scaled(v, 1000, []string{"/s", " K/s", " M/s"}, decimals)
	case "percentunit":
		return digits(100*v, decimals) + " %"
	case "dateTimeFromNow":
		return seconds(math.Round(end.Sub(time.UnixMilli(int64(v))).Seconds()), nil) + " ago"
	}
	return scaled(v, 1000, []string{"", " K", " M", " G"}, decimals)
}

func scaled(v, base float64, units []string, decimals *int) string {
	i := 0
	for ; math.Abs(v) >= base && i < len(units)-1; i++ {
		v /= base
	}
	if i == 0 && v == math.Trunc(v) {
		decimals = new(int)
	}
	if i > 0 {
		decimals = nil
	}
	return digits(v, decimals) + units[i]
}

func seconds(v float64, decimals *int) string {
	switch abs := math.Abs(v); {
	case abs == 0:
		return "0 s"
	case abs < 1:
		return digits(v*1000, nil) + " ms"
	case abs < 120:
		return digits(v, decimals) + " s"
	case abs < 7200:
		return digits(v/60, nil) + " min"
	}
	return digits(v/3600, nil) + " h"
}

// digits has three that count, or so many decimals.
func digits(v float64, decimals *int) string {
	if decimals != nil {
		return strconv.FormatFloat(v, 'f', *decimals, 64)
	}
	places := 0
	for abs := math.Abs(v); abs != 0 && abs < 100 && places < 2; abs *= 10 {
		places++
	}
	text := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// rungs are some round values from 0 to most.
func rungs(unit string, most float64) (all []float64) {
	base := 10.0
	steps := []float64{1, 2, 5, 10}
	if strings.HasPrefix(unit, "bin") || unit == "bytes" {
		base, steps = 1024, []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
	}
	power := math.Pow(base, math.Floor(math.Log(most/4)/math.Log(base)))
	step := power
	for _, s := range steps {
		if step = s * power; step*5 >= most {
			break
		}
	}
	for v := 0.0; v <= most*1.001; v += step {
		all = append(all, v)
	}
	return all
}

// clock has ticks at round times.
func clock(start, end time.Time) (at []time.Time) {
	step := time.Second
	for _, step = range []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute} {
		if end.Sub(start) <= 6*step {
			break
		}
	}
	for t := start.Truncate(step).Add(step); t.Before(end); t = t.Add(step) {
		at = append(at, t)
	}
	return at
}

func hour(t time.Time) string { return t.UTC().Format("15:04:05") }
