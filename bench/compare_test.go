package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A new build is worse when it is so by more than the A/A pairs differ, and by more than 3 %.
func TestJudge(t *testing.T) {
	rate := func(earlier, ours, again float64) round {
		return round{bare: outcome{rate: 1000}, earlier: outcome{rate: earlier}, ours: outcome{rate: ours}, again: outcome{rate: again}}
	}
	cost := func(earlier, ours, again float64) round {
		return round{earlier: outcome{warmCPU: earlier}, ours: outcome{warmCPU: ours}, again: outcome{warmCPU: again}}
	}
	for name, c := range map[string]struct {
		figure  figure
		rounds  []round
		verdict string
	}{
		"equal":                       {cpuFigure, []round{cost(10, 10, 10), cost(10, 10, 10)}, "same"},
		"worse":                       {cpuFigure, []round{cost(10, 10.5, 10), cost(20, 21, 20.1)}, "WORSE"},
		"less than tolerated":         {cpuFigure, []round{cost(10, 10.2, 10), cost(20, 20.4, 20)}, "same"},
		"less than the A/A":           {cpuFigure, []round{cost(10, 10.6, 10.9), cost(10, 10.9, 10.9), cost(10, 10.8, 10)}, "same"},
		"an A/A of 20 %":              {cpuFigure, []round{cost(10, 12, 12), cost(10, 12, 12)}, "unclear"},
		"one disturbed A/A pair":      {cpuFigure, []round{cost(10, 11, 10), cost(10, 11, 14), cost(10, 11, 10)}, "WORSE"},
		"better":                      {cpuFigure, []round{cost(10, 9, 10), cost(10, 9, 10)}, "better"},
		"a machine that gets slower":  {cpuFigure, []round{cost(10, 10.2, 10.4), cost(10.4, 10.6, 10.8), cost(10.8, 11, 11.2)}, "same"},
		"one round of three is apart": {cpuFigure, []round{cost(10, 10, 10), cost(10, 20, 10), cost(10, 10, 10)}, "same"},
		"fewer events a second":       {drainFigures[1], []round{rate(900, 850, 900), rate(900, 850, 900)}, "WORSE"},
		"more events a second":        {drainFigures[1], []round{rate(900, 990, 900), rate(900, 990, 900)}, "better"},
	} {
		t.Run(name, func(t *testing.T) {
			j := c.figure.judge(c.rounds)
			if got := j.verdict(); got != c.verdict || j.worse() != (got == "WORSE") {
				t.Errorf("%s, worse %v, want %s: %+v", got, j.worse(), c.verdict, j)
			}
		})
	}
	lines, worse := compared{comparedRow{name: "drain-1", figures: drainFigures[1:2]}, []round{rate(900, 850, 900)}}.markdown()
	if want := "| drain-1: events per second, and ÷ bare baseline | 900/s (0.90 ×) | 850/s (0.85 ×) | 0.94 | 0.0 % | WORSE |\n"; lines != want || worse != 1 {
		t.Errorf("%d worse, %swant 1, %s", worse, lines, want)
	}
}

func TestRowsOfAComparison(t *testing.T) {
	for only, nothing := range map[string]bool{"kafka/liv$": true, "rabbitmq/live": false} {
		err := options{sink: "kafka", only: regexp.MustCompile(only)}.selectsNothing()
		if (err != nil) != nothing {
			t.Errorf("%q: %v", only, err)
		}
	}
	for only, want := range map[string]string{
		"":            "start live drain-100 drain-1",
		"live":        "live",
		"kafka/drain": "drain-100 drain-1",
		"rabbitmq/":   "",
		"drain-1$":    "drain-1",
	} {
		var got []string
		for _, r := range (options{sink: "kafka", only: regexp.MustCompile(only)}).comparedRows(&versions{}) {
			got = append(got, r.name)
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q selects %v, want %s", only, got, want)
		}
	}
}
