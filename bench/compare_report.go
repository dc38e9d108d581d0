// What a comparison says: each figure of both builds, their ratio, and whether the new one is
// worse.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// round is what one round has shown: the earlier relay, the new one, the earlier one again; and a
// run of the bare baseline.
type round struct{ earlier, ours, again, bare outcome }

// compared is a row with its rounds.
type compared struct {
	row    comparedRow
	rounds []round
}

// figure is one number of an outcome.
type figure struct {
	name   string
	pick   func(outcome) float64
	show   func(float64) string
	higher bool // is better
	bare   bool // the bare baseline has it, too
}

var (
	cpuFigure    = figure{name: "CPU per event, the start not counted", pick: outcome.getWarmCPU, show: usedTime}
	drainFigures = []figure{
		cpuFigure,
		{name: "events per second, and ÷ bare baseline", pick: outcome.getRate, show: perSecond, higher: true, bare: true},
		{name: "peak memory (RSS)", pick: outcome.getPeak, show: mebibytes},
	}
	liveFigures = []figure{
		cpuFigure,
		{name: "p50 from COMMIT to the consumer, and ÷ bare loop", pick: outcome.getP50, show: lapse, bare: true},
		{name: "p99 from COMMIT to the consumer, and ÷ bare loop", pick: outcome.getP99, show: lapse, bare: true},
	}
	startFigures = []figure{
		{name: "time to the first event", pick: outcome.getStart, show: lapse},
		{name: "CPU to the first event", pick: outcome.getCPU, show: usedTime},
	}
)

const (
	// tolerated is how much worse a new build may be where the A/A pairs agree better than that.
	tolerated = 0.03
	// unclear is the A/A beyond which a figure says nothing unless it is worse.
	unclear = 0.10
)

// judgment is a figure over all rounds.
type judgment struct {
	earlier, ours         float64 // medians
	earlierBare, oursBare float64 // the same ÷ that of the bare baseline
	// new ÷ earlier, the median of the rounds. A round has the new run against the geometric mean
	// of the two earlier ones around it.
	ratio float64
	// the second largest difference of two runs of the same build in one round, as a share: one
	// disturbed round hides no change, as it makes none in the median
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
	j.spread = spreads[max(len(spreads)-2, 0)]
	j.earlier, j.ours, j.ratio = median(earlier), median(ours), median(ratios)
	j.earlierBare, j.oursBare = j.earlier/median(bare), j.ours/median(bare)
	if j.change = j.ratio - 1; f.higher {
		j.change = 1/j.ratio - 1
	}
	return j
}

func (j judgment) worse() bool { return j.change > max(j.spread, tolerated) }

func (j judgment) verdict() string {
	switch {
	case j.worse():
		return "WORSE"
	case 1/(1+j.change)-1 > max(j.spread, tolerated):
		return "better"
	case j.spread > unclear:
		return "unclear"
	default:
		return "same"
	}
}

// missing is an error when a run has no value of a figure: it would be compared with nothing.
func (c compared) missing() error {
	for _, f := range c.row.figures {
		for _, r := range c.rounds {
			if min(f.pick(r.earlier), f.pick(r.ours), f.pick(r.again)) <= 0 {
				return fmt.Errorf("a run of %s has no %q", c.row.name, f.name)
			}
		}
	}
	return nil
}

// markdown is the row's lines of the table, and how many figures are worse.
func (c compared) markdown() (lines string, worse int) {
	for _, f := range c.row.figures {
		j := f.judge(c.rounds)
		earlier, ours := f.show(j.earlier), f.show(j.ours)
		if f.bare {
			earlier += fmt.Sprintf(" (%s ×)", number(j.earlierBare))
			ours += fmt.Sprintf(" (%s ×)", number(j.oursBare))
		}
		lines += fmt.Sprintf("| %s: %s | %s | %s | %.2f | %.1f %% | %s |\n",
			c.row.name, f.name, earlier, ours, j.ratio, 100*j.spread, j.verdict())
		if j.worse() {
			worse++
		}
	}
	return lines, worse
}

// errWorse ends a comparison in which all was measured.
var errWorse = errors.New("the new build is worse")

// compare measures the rows of opt for the relay of opt.base and that of the checkout. What was
// measured before an error is in the text.
func (s *stand) compare(ctx context.Context, at comparedBroker, head []string) (string, error) {
	base, err := resolve(ctx, s.opt.base)
	if err != nil {
		return "", err
	}
	s.say("building the relay of %s", base[:8])
	s.env = []string{runner.Earlier} // both are run as the earlier one can be
	c := &versions{stand: s, at: at}
	if c.ours, err = runner.Program(ctx, "cmd/cdc-relay"); err != nil {
		return "", err
	}
	if c.earlier, err = runner.RelayAt(base); err != nil {
		return "", fmt.Errorf("build the relay of %s: %w", base[:8], err)
	}
	var b strings.Builder
	worse := 0
	for _, row := range s.opt.comparedRows(c) {
		s.say("%s", row.name)
		var found compared
		if found, err = c.measure(ctx, row); err == nil {
			err = found.missing()
		}
		if err != nil {
			err = fmt.Errorf("measure %s: %w", row.name, err)
			break
		}
		lines, n := found.markdown()
		s.say("\n%s", lines)
		b.WriteString(lines)
		worse += n
	}
	if err == nil && worse > 0 && !s.opt.quick {
		err = fmt.Errorf("%w: %d figures on %s", errWorse, worse, s.opt.sink)
	}
	return fmt.Sprintf("# %s: new (the checkout) beside earlier (%s)\n\n- %s\n- %s, took %s\n\n"+
		"Medians of %d runs of the bare baseline, and of as many rounds: earlier, new, earlier. New ÷ earlier is the median of the rounds' ratios. A/A is the\n"+
		"second largest difference of the two earlier runs of a round. WORSE: by more than A/A and %.0f %%. Unclear: A/A is above %.0f %%.\n\n"+
		"| | earlier | new | new ÷ earlier | A/A | |\n|---|---|---|---|---|---|\n%s",
		brokers[s.opt.sink].name, base[:8], strings.Join(head, "\n- "),
		s.began.UTC().Format("2006-01-02 15:04 UTC"), time.Since(s.began).Round(time.Second), s.size.pairs, 100*tolerated, 100*unclear, b.String()), err
}

// resolve is the full hash of a commit.
func resolve(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "--quiet", name+"^{commit}").Output()
	if err != nil {
		return "", fmt.Errorf("%q is no commit of this clone (a shallow one has few: git fetch --unshallow)", name)
	}
	return strings.TrimSpace(string(out)), nil
}
