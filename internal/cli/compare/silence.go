// What compare does about a side that sends nothing: it says so, and gives up after --timeout.

package compare

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
)

// When a side that is waited for is mentioned: after firstNotice, and then every noticeEvery.
const (
	firstNotice = 5 * time.Second
	noticeEvery = 30 * time.Second
)

// silence watches for a side that sends nothing. Where few events are written, both sides may be
// quiet for long, so it gives up only a side that has never sent anything. The exception is a
// comparison that only --count can end. It reads no clock, and only one goroutine may use it.
type silence struct {
	places  [2]string     // the topic, or the exchange and its queue
	causes  [2]string     // the likely cause when the side sends nothing
	timeout time.Duration // 0 waits for ever
	endless bool          // only --count can end the comparison

	last [2]time.Time // when a side's last message came; at first the start
	sent [2]int64     // how many messages a side has sent
	said time.Time    // when the last notice was printed
}

// newSilence starts to watch at the time now.
func newSilence(f *compareFlags, places [2]string, onKafka bool, now time.Time) silence {
	s := silence{places: places, timeout: f.timeout, endless: f.period == 0 && f.count > 0, last: [2]time.Time{now, now}}
	binding := ""
	if !onKafka {
		binding = ", or --routing-key matches nothing that it sends"
	}
	s.causes[theirs] = "Debezium does not run, or sends to another name" + binding
	s.causes[ours] = "cdc-relay does not run or its destination is paused (cdc-relay status), or it sends to another name" + binding
	return s
}

// note is called at each message of a side.
func (s *silence) note(side int, now time.Time) {
	s.last[side] = now
	s.sent[side]++
}

// silentFor returns for how long a side has sent nothing.
func (s *silence) silentFor(side int, now time.Time) time.Duration { return now.Sub(s.last[side]) }

// notice returns the line that is due, or "". waiting are the bytes of each side that wait for the
// other one. done are the sides of which nothing is wanted at the moment.
func (s *silence) notice(now time.Time, waiting [2]int, done [2]bool) string {
	if !s.said.IsZero() && now.Sub(s.said) < noticeEvery {
		return ""
	}
	var silent []string
	for side := range s.places {
		awaited := s.sent[side] == 0 || waiting[1-side] > 0
		if awaited && !done[side] && s.silentFor(side, now) >= firstNotice {
			silent = append(silent, s.text(side, now))
		}
	}
	quiet := min(s.silentFor(theirs, now), s.silentFor(ours, now))
	if len(silent) == 0 && !done[theirs] && !done[ours] && quiet >= noticeEvery {
		silent = []string{"both sides have sent nothing for " + command.Age(quiet)}
	}
	if len(silent) == 0 {
		return ""
	}
	s.said = now
	return "waiting: " + strings.Join(silent, "; ")
}

// text says which side is silent, and for how long.
func (s *silence) text(side int, now time.Time) string {
	since := ""
	if s.sent[side] > 0 {
		since = " after " + command.Count(uint64(s.sent[side]), "message")
	}
	return fmt.Sprintf("%s (%s) has sent nothing for %s%s", s.places[side], sideName[side], command.Age(s.silentFor(side, now)), since)
}

// giveUp returns the error of a comparison that has waited long enough, or nil while it is to go
// on.
func (s *silence) giveUp(now time.Time, done [2]bool) error {
	if s.timeout == 0 {
		return nil
	}
	var silent, causes []string
	for side := range s.places {
		if done[side] || !s.endless && s.sent[side] > 0 || s.silentFor(side, now) < s.timeout {
			continue
		}
		silent = append(silent, s.text(side, now))
		causes = append(causes, sideName[side]+": "+s.causes[side])
	}
	if len(silent) == 0 {
		return nil
	}
	if len(silent) == len(s.places) {
		causes = append([]string{"no event is written to the outbox"}, causes...)
	}
	return &silentError{strings.Join(silent, "; "), strings.Join(causes, "; ")}
}

// silentError is why a comparison gave up: a side sends nothing.
type silentError struct{ what, causes string }

// Error implements error.
func (e *silentError) Error() string { return e.what }

// fix names likely causes, and how to wait longer.
func (e *silentError) fix() string {
	return "likely causes: " + e.causes + "; wait longer with --timeout"
}
