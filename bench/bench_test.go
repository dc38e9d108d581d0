package main

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of the pages again")

func TestMain(m *testing.M) {
	if err := os.Chdir(pages.Root()); err != nil {
		panic(err)
	}
	servers.Main(m)
}

// The tables of the pages are those of the reports: no number in them is written by hand.
func TestPagesHaveTheMeasuredTables(t *testing.T) {
	if *rewrite {
		if err := rewritePages(); err != nil {
			t.Fatal(err)
		}
	}
	used := ""
	for _, page := range tablePages {
		text := pages.Text(t, page)
		want, err := withTables(text, readReport)
		if err != nil {
			t.Fatal(err)
		}
		if text != want {
			t.Errorf("%s has other tables than bench/results; go test . -run %s -args -rewrite", page, t.Name())
		}
		for _, place := range tablePlace.FindAllStringSubmatch(text, -1) {
			used += place[1] + " "
		}
	}
	for _, k := range kinds {
		for _, name := range reports {
			file := strings.TrimSuffix(strings.TrimPrefix(resultFile(k.sink, name), "bench/results/"), ".md")
			if name != repeatsReport && !slices.Contains(strings.Fields(used), file) {
				t.Errorf("no page has a table of the report %s", file)
			}
		}
	}
}

func TestTablesAreJoined(t *testing.T) {
	of := func(broker string, results ...result) string {
		return report{name: debeziumReport, kind: kind{name: broker}, results: results}.markdown(0)
	}
	rate, lost := rateFigure.as("rate"), lostFigure.as("lost")
	reports := map[string]string{
		"r": of("RabbitMQ", result{figure: rate, ours: []float64{20_000, 19_000, 21_000}, base: []float64{7000, 6000, 8000}, usual: []float64{6000}},
			result{figure: rateFigure, ours: []float64{1}}, result{figure: lost, ours: []float64{0}, base: []float64{7015}}),
		"k": of("Kafka", result{figure: rate, ours: []float64{90_000}, base: []float64{21_000}, usual: []float64{20_000}}),
	}
	const want = `<!-- bench: r k -->
| Measured | RabbitMQ: cdc-relay | Debezium, tuned | its defaults | Kafka: cdc-relay | Debezium, tuned | its defaults |
|---|---|---|---|---|---|---|
| rate | 20.0k/s | 7000/s | 6000/s | 90.0k/s | 21.0k/s | 20.0k/s |
| lost | 0 | 7,015 | – | – | – | – |
<!-- end of bench -->`
	got, err := withTables("before\n<!-- bench: r k -->\nold\n<!-- end of bench -->\nafter", func(name string) (string, error) { return reports[name], nil })
	if err != nil || got != "before\n"+want+"\nafter" {
		t.Errorf("%v:\n%s", err, got)
	}
}

// TestHistorySees breaks a history in each way: the check of the runs is checked.
func TestHistorySees(t *testing.T) {
	const first = 7 << 32
	for name, tc := range map[string]struct {
		arrived []int64
		repeats bool
		want    string // in the verdict; "" for none
	}{
		"all in order":              {[]int64{0, 1, 2, 3}, false, ""},
		"keys overtake each other":  {[]int64{1, 0, 3, 2}, false, ""},
		"one lost":                  {[]int64{0, 1, 2}, false, "lost 1,"},
		"one twice":                 {[]int64{0, 1, 0, 2, 3}, false, "twice 1,"},
		"one twice, as may be":      {[]int64{0, 1, 0, 2, 3}, true, ""},
		"a key out of order":        {[]int64{2, 1, 0, 3}, true, "order 1,"},
		"an event of another run":   {[]int64{-1, 0, 1, 2, 3}, true, "of no row 1,"},
		"an event that no row made": {[]int64{0, 1, 2, 3, 4}, true, "of no row 1,"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{repeats: tc.repeats, keys: map[int64]string{first: "a", first + 1: "b", first + 2: "a", first + 3: "b"}}
			var arrived []arrival
			for _, i := range tc.arrived {
				arrived = append(arrived, arrival{n: first + i})
			}
			h.compare(arrived)
			if err := h.verdict(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("verdict %v, want %q", err, tc.want)
			}
		})
	}
	if err := (&history{}).verdict(); err == nil {
		t.Error("a history without rows shows nothing, and must not pass")
	}
}

// What arrives must be the message that its row makes.
func TestArrivals(t *testing.T) {
	a := &arrivals{load: load{keys: 10, payload: 60}}
	id, body := uuid(3<<32+12), appendPayload(nil, 12, 60)
	for _, m := range []struct {
		id, key string
		body    []byte
		shape   bool
	}{{id, "customer-2", body, true}, {id, "customer-3", body, true}, {id, "customer-2", body[1:], true}, {id, "customer-2", body, false}, {"?", "customer-2", body, true}} {
		a.add(m.id, m.key, m.body, m.shape)
	}
	for i, m := range a.got {
		if i < 4 && m.n != 3<<32+12 || m.odd != (i > 0 && i < 4) || i == 4 && m.n >= 0 {
			t.Errorf("%d: %+v", i, m)
		}
	}
}

func TestVerdict(t *testing.T) {
	ratio := func(must float64, higher bool) figure { return figure{higher: higher}.reach(must) }
	for _, tc := range []struct {
		figure     figure
		ours, base []float64
		want       string
	}{
		{ratio(0.8, true), []float64{79}, []float64{100}, "FAIL"},
		{ratio(0.8, true), []float64{80}, []float64{100}, "PASS"},
		{ratio(0.1, false), []float64{2, 2}, []float64{100, 50, 100}, "PASS"}, // at most 0.04
		{ratio(0.1, false), []float64{8, 8}, []float64{100, 50, 100}, "VOID"}, // 0.04 … 0.16
		{ratio(0.1, false), []float64{30, 30}, []float64{100, 50, 100}, "FAIL"},
		{ratio(2, true), []float64{25, 25}, []float64{10, 10, 10}, "PASS"},
		{ratio(2, true), []float64{19, 19}, []float64{10, 8, 10}, "VOID"},
		{ratio(96, false), []float64{97}, nil, "FAIL"},
		{ratio(1, false).ofTheWorst(), []float64{0.1, 1.1, 0.2}, nil, "FAIL"},
		{ratio(0, false).byItself(), []float64{0}, []float64{7000}, "PASS"},
		{ratio(0, false).byItself(), []float64{1}, []float64{7000}, "FAIL"},
		{figure{}, []float64{1}, nil, ""},
	} {
		if got := (result{figure: tc.figure, ours: tc.ours, base: tc.base}).verdict(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc, got, tc.want)
		}
	}
	if got := (result{base: []float64{100, 120, 90, 130, 110, 125}}).aa(); got < 0.249 || got > 0.251 {
		t.Errorf("A/A %.3f, want 0.25", got)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.625: 3.5, 1: 5} {
		if got := quantile([]float64{5, 1, 4, 2, 3}, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

// A new build is worse when it is so by more than the A/A pairs differ, and by more than 3 %.
func TestJudge(t *testing.T) {
	cost := func(earlier, ours, again float64) round {
		return round{earlier: outcome{warmCPU: earlier, rate: 1e3 / earlier}, ours: outcome{warmCPU: ours, rate: 1e3 / ours}, again: outcome{warmCPU: again, rate: 1e3 / again}}
	}
	for name, c := range map[string]struct {
		rounds  []round
		verdict string
	}{
		"equal":                       {[]round{cost(10, 10, 10), cost(10, 10, 10)}, "same"},
		"worse":                       {[]round{cost(10, 10.5, 10), cost(20, 21, 20.1)}, "WORSE"},
		"less than tolerated":         {[]round{cost(10, 10.2, 10), cost(20, 20.4, 20)}, "same"},
		"less than the A/A":           {[]round{cost(10, 10.6, 10.9), cost(10, 10.9, 10.9), cost(10, 10.8, 10)}, "same"},
		"an A/A of 20 %":              {[]round{cost(10, 12, 12), cost(10, 12, 12)}, "unclear"},
		"one disturbed A/A pair":      {[]round{cost(10, 11, 10), cost(10, 11, 14), cost(10, 11, 10)}, "WORSE"},
		"better":                      {[]round{cost(10, 9, 10), cost(10, 9, 10)}, "better"},
		"a machine that gets slower":  {[]round{cost(10, 10.2, 10.4), cost(10.4, 10.6, 10.8), cost(10.8, 11, 11.2)}, "same"},
		"one round of three is apart": {[]round{cost(10, 10, 10), cost(10, 20, 10), cost(10, 10, 10)}, "same"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range []figure{warmCPUFigure, rateFigure} {
				if got := f.judge(c.rounds).verdict(); got != c.verdict {
					t.Errorf("%s: %s, want %s: %+v", f.name, got, c.verdict, f.judge(c.rounds))
				}
			}
		})
	}
	r := row{name: "drain-1", figures: figures{rateFigure.besideBare()}}
	lines, worse := r.compared([]round{{bare: outcome{rate: 1000}, earlier: outcome{rate: 900}, ours: outcome{rate: 850}, again: outcome{rate: 900}}})
	if want := "| drain-1: events per second | 900/s (0.90 ×) | 850/s (0.85 ×) | 0.94 | 0.0 % | WORSE |\n"; lines != want || worse != 1 {
		t.Errorf("%d worse, %swant 1, %s", worse, lines, want)
	}
}

// The processor time holds this process' clock against what the kernel says of it just before and
// just after.
func TestProcessorTime(t *testing.T) {
	used := func() float64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
	}
	before := used()
	got, err := cpuTime(os.Getpid())
	const tick = 10_000 // µs: they round differently
	if after := used(); err != nil || got < before-tick || got > after+tick {
		t.Errorf("processor time %v, %v; want %v … %v", got, err, before, after)
	}
	if peak, err := peakRSS(os.Getpid()); err != nil || peak < 1<<20 {
		t.Errorf("peak memory %v, %v", peak, err)
	}
}
