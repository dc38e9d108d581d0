// The verdict at the end of the demo.

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
)

// outcome is what the demo has shown.
type outcome struct {
	checker.Verdict
	words      words // of the broker
	keys       int
	rolledBack int
	samples    int           // of the slot's position, compared with what the broker had
	away       time.Duration // from stopping the broker until it took connections again
	up         latency
	outages    []latency // without the broker, and through the mistake

	poisonID   string
	number     int64         // of its dead letter
	died       time.Duration // from the poison's commit to its dead letter
	most       int           // events that were deferred at a time
	waited     time.Duration // from the mistake until it was undone
	filled     time.Duration // from the broker's end until all was sent, by the disk guard
	worst      bool          // a disk would have filled, a standby was promoted, the slot was lost
	promotion  promoted
	lostOutage int           // of the meter
	lost       time.Duration // from then until everything was sent
}

// line is the outcome in one sentence, on two lines.
func (o *outcome) line() string {
	order := "in order per key"
	if n := len(o.OutOfOrder); n > 0 {
		order = fmt.Sprintf("%s out of order", console.Thousands(n))
	}
	duplicates := console.Thousands(o.Duplicates) + " duplicates"
	if !o.words.once {
		duplicates += " (at least once)"
	}
	return fmt.Sprintf("%s committed, %s delivered %s, %s lost,\n%s; broker up: p50 %s, p99 %s",
		console.Thousands(o.Committed), console.Thousands(o.Delivered), order, console.Thousands(len(o.Lost)), duplicates, console.Short(o.up.p50), console.Short(o.up.p99))
}

// lines is what was checked, each point with a tick or a cross, and the sentence.
func (o *outcome) lines(c *console.Console) []string {
	lines := []string{"", "  " + "Verdict (from the database and the " + o.words.place + "; the relay is not asked)", ""}
	check := func(bad int, good, fault string) {
		if bad > 0 {
			lines = append(lines, "  "+c.Red("✗ "+fault+": "+console.Thousands(bad)))
			return
		}
		lines = append(lines, "  "+c.Green("✓")+" "+good)
	}
	check(len(o.Lost), fmt.Sprintf("%s events committed, %s delivered, 0 lost", console.Thousands(o.Committed), console.Thousands(o.Delivered)),
		fmt.Sprintf("LOST of %s committed events", console.Thousands(o.Committed)))
	check(len(o.OutOfOrder)+len(o.Moved), fmt.Sprintf("in commit order for each of %s keys", console.Thousands(o.keys)), "events OUT OF ORDER")
	check(len(o.Phantom), fmt.Sprintf("%s rows rolled back, none of them delivered", console.Thousands(o.rolledBack)), "events delivered that were NEVER COMMITTED")
	check(len(o.Altered), "every event arrived with its own key and number", "events ALTERED on the way")
	check(len(o.FlushAheadOfDelivery), fmt.Sprintf("the slot passed no event before the %s or a table had it (%s samples)", o.words.place, console.Thousands(o.samples)),
		"events CONFIRMED to PostgreSQL before the broker had them")
	check(len(o.Deferred)+len(o.Dead)+len(o.InTwo)+len(o.Unasked), fmt.Sprintf("%s events were deferred, %d was dead and replayed; nothing is left", console.Thousands(o.most), len(o.Replayed)),
		"events LEFT in the retry table")
	note := func(format string, args ...any) { lines = append(lines, "    "+fmt.Sprintf(format, args...)) }
	if o.words.once && !o.worst {
		check(o.Duplicates, "0 duplicates (after a crash of the relay: deduplicate by "+o.words.id+")", "DUPLICATES though the relay lived")
	} else {
		note("%s duplicates (at least once: a consumer deduplicates by %s)", console.Thousands(o.Duplicates), o.words.id)
	}
	if o.Redelivered > 0 {
		note("besides, %s itself sent again and said so (redelivered): %s", o.words.name, console.Thousands(o.Redelivered))
	}
	note("%s was away for %.1f s; %s events waited, the longest %s",
		o.words.name, o.away.Seconds(), console.Thousands(int(o.outages[0].count)), console.Short(o.outages[0].max))
	note("the mistake was undone after %.1f s; %s events waited, the longest %s",
		o.waited.Seconds(), console.Thousands(int(o.outages[1].count)), console.Short(o.outages[1].max))
	if o.worst {
		disk := o.outages[2]
		note("the disk guard outlasted %d MiB of WAL with a limit of %d; all was sent %.1f s after %s went away; %s events waited, the longest %s",
			diskParts*diskChunk, diskLimit, o.filled.Seconds(), o.words.name, console.Thousands(int(disk.count)), console.Short(disk.max))
		note("the primary was killed and its standby promoted; no event came for %.1f s, %s came twice; %s events waited, the longest %s",
			o.promotion.away.Seconds(), console.Thousands(o.promotion.repeats), console.Thousands(int(o.outages[o.promotion.outage].count)), console.Short(o.outages[o.promotion.outage].max))
		note("the slot was lost, and everything was sent %.1f s later; %s events waited, the longest %s",
			o.lost.Seconds(), console.Thousands(int(o.outages[o.lostOutage].count)), console.Short(o.outages[o.lostOutage].max))
	}
	note("the poison order was a dead letter after %s", console.Short(o.died))
	note("commit to consumer with the broker up: p50 %s, p99 %s", console.Short(o.up.p50), console.Short(o.up.p99))
	lines = append(lines, "")
	word, rest := c.Green("PASSED"), o.line()
	if err := o.Err(); err != nil {
		word, rest = c.Red("FAILED"), err.Error()
	}
	for _, line := range strings.Split(rest, "\n") {
		lines = append(lines, "  "+word+"  "+line)
		word = "      "
	}
	return append(lines, "")
}
