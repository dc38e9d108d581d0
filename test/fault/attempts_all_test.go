//go:build testall

package fault

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What is refused for a reason that may pass is tried again, and not for ever.

// spoilt is in messages that Kafka refuses without saying why: the way there spoils them, so that
// they do not fit their checksum.
const spoilt = "spoilt"

// ailing inserts an event that the broker refuses, for a fault that may pass. The way there must
// spoil it.
func ailing(s *stand.Stand, key string, seq int) (id string) {
	s.T.Helper()
	return insert(s, row{key: key, seq: seq, cc: spoilt})
}

// beside is another key whose events go to the same partition.
func beside(key string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("beside ", i); stand.JavaPartition(other, 3) == stand.JavaPartition(key, 3) {
			return other
		}
	}
}

// An event at fault itself is deferred alone and tried again with backoff. Its attempts are spent
// soon, and do not condemn it before something else was confirmed at its destination: then it is
// dead, is counted once, and its key goes on.
func TestAttemptsAreSpent(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		const most = 3
		s.Retry = fmt.Sprintf("backoff: 50ms, max_backoff: 100ms, max_attempts: %d", most)
		s.Broker.Spoil([]byte(spoilt))
		r := s.StartWatched()
		bad := ailing(s, "a", 1)
		behind := event(s, "a", 2, load.Kind{})
		s.AwaitRows(checker.Deferred, 2)
		s.Until("its attempts to be spent", func() (spent bool) {
			s.Query([]any{&spent}, `SELECT coalesce(bool_or(attempts > $1 AND next_attempt IS NOT NULL AND class = 'transient' AND reason = 'broker_exception'), false)
				FROM cdc_relay.retry WHERE convert_from(id, 'UTF8') = $2`, most, bad)
			return spent
		})
		if n := s.Metric(r, "cdc_relay_retries_exhausted_total"); n != 0 || s.RowsIn(checker.Open) > 0 {
			s.T.Errorf("%g events are given up, and %d dead, though nothing else is confirmed there", n, s.RowsIn(checker.Open))
		}
		passes := event(s, beside("a"), 1, load.Kind{})
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{passes, behind}))
		s.AwaitEmpty()
		v := s.CheckHistory(checker.History{MaxDuplicates: s.Repeats(1), MaxDead: 1})
		if !slices.Equal(v.Dead, []string{bad}) {
			s.T.Errorf("dead are %v, want %s", v.Dead, bad)
		}
		var class, reason string
		var attempts float64
		s.Query([]any{&class, &reason, &attempts}, `SELECT class, reason, attempts FROM cdc_relay.dead_letter`)
		if class != "transient" || reason != "broker_exception" || attempts <= most {
			s.T.Errorf("it died of %s, %s after %g attempts", class, reason, attempts)
		}
		s.Until("the metrics to tell of one event that was given up", func() bool {
			return s.Metric(r, "cdc_relay_retries_exhausted_total") == 1 && s.Metric(r, "cdc_relay_dead_letters_open") == 1 &&
				s.Metric(r, "cdc_relay_deferred_events") == 0
		})
		// Each refusal is counted as such, and all but the first are attempts to publish what was
		// deferred; so is the event behind it.
		if n := s.Metric(r, `cdc_relay_rejections_total{class="transient",reason="broker_exception"}`); n != attempts {
			s.T.Errorf("%g rejections are counted, want %g", n, attempts)
		}
		if n := s.Metric(r, "cdc_relay_retry_attempts_total"); n != attempts {
			s.T.Errorf("%g attempts to publish deferred events are counted, want %g", n, attempts)
		}
		stopped(s, r, 0)
	})
}
