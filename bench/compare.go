// Two builds of the relay in turns on the same servers: the one of an earlier commit, and the
// checkout's.
package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// comparedRows are what both builds do: of makes a run of one of them.
func (s *stand) comparedRows() []row {
	backlog := 80_000
	if s.kind.sink == "kafka" {
		backlog = 200_000
	}
	drain := func(name string, events, perTx int) row {
		l := load{events: s.n(events), perTx: perTx, keys: 1000, payload: 512, ordering: "key", partitions: 12}
		return row{name: name, base: s.bare(l), of: func(p relay) run { return s.drain(p, l) }, figures: figures{
			warmCPUFigure, rateFigure.named("events per second, and ÷ bare baseline").besideBare(), peakFigure,
		}}
	}
	live := load{keys: 1000, payload: 512, ordering: "key", partitions: 12}
	hear := func(p program) run { return s.hear(p, live, 2*time.Second, 7*time.Second) }
	first := load{events: 1, perTx: 1, keys: 1, payload: 512, ordering: "key"}
	return []row{
		{name: "start", of: func(p relay) run { return s.drain(p, first) }, figures: figures{
			startFigure.named("time to the first event"), cpuFigure.named("CPU to the first event"),
		}},
		{name: "live", base: hear(bareLoop{}), of: func(p relay) run { return hear(p) }, figures: figures{
			warmCPUFigure, p50Figure.named("p50 from COMMIT to the consumer, and ÷ bare loop").besideBare(),
			p99Figure.named("p99 from COMMIT to the consumer, and ÷ bare loop").besideBare(),
		}},
		drain("drain-100", backlog, 100),
		drain("drain-1", backlog/2, 1),
	}
}

// round is a run of the earlier relay, of the new one, and of the earlier one again. The two runs
// of the same build are the round's A/A pair. The new one stands in their middle, so that a machine
// which gets slower favors neither.
type round struct{ earlier, ours, again, bare outcome }

// compare measures rows for the relay of a commit and that of the checkout, and writes the table.
// What was measured before an error is in it.
func (s *stand) compare(ctx context.Context, base string, tabs int, rows []row, out io.Writer) error {
	began := time.Now()
	commit, err := git(ctx, "rev-parse", "--verify", "--quiet", base+"^{commit}")
	if err != nil {
		return fmt.Errorf("%q is no commit of this clone (a shallow one has few: git fetch --unshallow)", base)
	}
	s.say("building the relay of %s", commit[:8])
	// both are run as the earlier one can be; the tabs need the socket, which an early one has not
	earlier, ours := relay{earlier: true}, relay{earlier: tabs == 0, tabs: tabs}
	if ours.binary, err = runner.Program(ctx, "cmd/cdc-relay"); err != nil {
		return err
	}
	if earlier.binary, err = runner.RelayAt(commit); err != nil {
		return fmt.Errorf("build the relay of %s: %w", commit[:8], err)
	}
	head, err := s.machine(ctx, "")
	if err != nil {
		return err
	}
	pairs := 5
	if s.quick {
		pairs = 1
	}
	table, worse := "", 0
	for _, r := range rows {
		s.say("%s", r.path(s.kind))
		var rounds []round
		if rounds, err = s.rounds(ctx, r, earlier, ours, pairs); err != nil {
			err = fmt.Errorf("measure %s: %w", r.name, err)
			break
		}
		lines, n := r.compared(rounds)
		s.say("\n%s", lines)
		table += lines
		worse += n
	}
	fmt.Fprintf(out, "# %s: new (the checkout) beside earlier (%s)\n\n- %s\n- %s, took %s\n\n"+
		"Medians of %d runs of the bare baseline, and of as many rounds: earlier, new, earlier. New ÷ earlier is the median of the rounds' ratios. A/A is the\n"+
		"second largest difference of the two earlier runs of a round. WORSE: by more than A/A and %.0f %%. Unclear: A/A is above %.0f %%.\n\n"+
		"| | earlier | new | new ÷ earlier | A/A | |\n|---|---|---|---|---|---|\n%s",
		s.kind.name, commit[:8], strings.Join(head, "\n- "), began.UTC().Format("2006-01-02 15:04 UTC"), time.Since(began).Round(time.Second),
		pairs, 100*tolerated, 100*unclear, table)
	if err == nil && worse > 0 && !s.quick {
		err = fmt.Errorf("%w: %d figures on %s", errWorse, worse, s.kind.name)
	}
	return err
}

// rounds are those of a row. The bare baseline comes before all of them, so that each relay follows
// another one.
func (s *stand) rounds(ctx context.Context, r row, earlier, ours relay, n int) (all []round, err error) {
	one := func(name string, do run) (o outcome) {
		if err != nil || do == nil {
			return o
		}
		if o, err = do(ctx); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return o
	}
	all = make([]round, n)
	for i := range all {
		all[i].bare = one("bare baseline", r.base)
	}
	one("new relay, to warm up", r.of(ours))
	one("earlier relay, to warm up", r.of(earlier))
	for i := range all {
		a := &all[i]
		a.earlier, a.ours, a.again = one("earlier relay", r.of(earlier)), one("new relay", r.of(ours)), one("earlier relay", r.of(earlier))
		if err != nil {
			return nil, err
		}
		s.say("    earlier %s\n            new     %s\n            earlier %s", r.say(a.earlier), r.say(a.ours), r.say(a.again))
		for _, f := range r.figures {
			// it would be compared with nothing
			if min(f.pick(a.earlier), f.pick(a.ours), f.pick(a.again)) <= 0 {
				return nil, fmt.Errorf("a run has no %q", f.name)
			}
		}
	}
	return all, nil
}

const (
	// tolerated is how much worse a new build may be where the A/A pairs agree better than that.
	tolerated = 0.03
	// unclear is the A/A beyond which a figure says nothing unless it is worse.
	unclear = 0.10
)

// judgment is a figure over all rounds.
type judgment struct {
	earlier, ours, bare float64 // medians
	// new ÷ earlier, the median of the rounds. A round has the new run against the geometric mean
	// of the two earlier ones around it.
	ratio float64
	// the second largest difference of two runs of the same build in one round, as a share: one
	// disturbed round hides no change
	spread float64
	change float64 // how much worse the new one is, as a share; below 0: better
}

func (f figure) judge(rounds []round) (j judgment) {
	var earlier, ours, bare, ratios, spreads []float64
	for _, r := range rounds {
		a, n, b := f.pick(r.earlier), f.pick(r.ours), f.pick(r.again)
		earlier, ours, bare = append(earlier, a, b), append(ours, n), append(bare, f.pick(r.bare))
		ratios, spreads = append(ratios, n/math.Sqrt(a*b)), append(spreads, max(a, b)/min(a, b)-1)
	}
	slices.Sort(spreads)
	j = judgment{earlier: median(earlier), ours: median(ours), bare: median(bare), ratio: median(ratios), spread: spreads[max(len(spreads)-2, 0)]}
	if j.change = j.ratio - 1; f.higher {
		j.change = 1/j.ratio - 1
	}
	return j
}

func (j judgment) verdict() string {
	switch bound := max(j.spread, tolerated); {
	case j.change > bound:
		return "WORSE"
	case 1/(1+j.change)-1 > bound:
		return "better"
	case j.spread > unclear:
		return "unclear"
	default:
		return "same"
	}
}

// compared is a row's lines of the table, and how many figures are worse.
func (r row) compared(rounds []round) (lines string, worse int) {
	for _, f := range r.figures {
		j := f.judge(rounds)
		earlier, ours := f.show(j.earlier), f.show(j.ours)
		if f.bare {
			earlier += fmt.Sprintf(" (%s ×)", decimals(j.earlier/j.bare))
			ours += fmt.Sprintf(" (%s ×)", decimals(j.ours/j.bare))
		}
		if j.verdict() == "WORSE" {
			worse++
		}
		lines += fmt.Sprintf("| %s: %s | %s | %s | %.2f | %.1f %% | %s |\n", r.name, f.name, earlier, ours, j.ratio, 100*j.spread, j.verdict())
	}
	return lines, worse
}
