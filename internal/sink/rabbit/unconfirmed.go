// Pairs of exchange and routing key that do not confirm while others do: their queue is stuck, or
// has lost its majority.

package rabbit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

const (
	// maxStuck bounds the pairs that wait for their answer; beyond it each attempt delays its lane.
	maxStuck = 100
	// A pair is tried again after stuckAgain times the confirm timeout, although its answer is
	// still missing.
	stuckAgain = 10
)

// unconfirmed are the pairs whose message was late twice. Their channels are kept, because the
// answer can only come there; the answer shows that the queue works again. Until then an event for
// the pair is rejected without being sent: it would delay its lane for the confirm timeout, and
// would be stored as one more copy in the end.
type unconfirmed struct {
	closed func()       // called when a kept channel is released
	count  atomic.Int32 // zero spares the lanes the lock
	mu     sync.Mutex
	by     map[pair]*missing
}

// missing is an answer that has not come.
type missing struct {
	channel *conn.Channel
	answer  *amqp.DeferredConfirmation
	fault   *sink.Fault
	since   time.Time
	until   time.Time // the end of the wait for it
}

// over reports whether the answer has come, or its channel has ended, or the wait for it.
func (m *missing) over(now time.Time) bool {
	select {
	case <-m.answer.Done():
		return true
	default:
		return !now.Before(m.until)
	}
}

// add has a pair wait for an answer. It returns false when the channel need not be kept: the pair
// waits for another answer already, or too many pairs wait.
func (s *unconfirmed) add(at pair, m *missing) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.by[at]; was != nil {
		if was.channel == m.channel || !was.over(m.since) {
			return was.channel == m.channel // one answer is enough
		}
		m.since = was.since
		s.drop(at)
	}
	if len(s.by) >= maxStuck {
		return false
	}
	if s.by == nil {
		s.by = map[pair]*missing{}
	}
	s.by[at.clone()] = m
	s.count.Store(int32(len(s.by)))
	return true
}

// check returns why a message to the pair may not be sent now; nil when it may.
func (s *unconfirmed) check(exchange, routingKey string) *sink.Fault {
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := pair{exchange, routingKey}
	switch m := s.by[at]; {
	case m == nil:
		return nil
	case !m.over(time.Now()):
		return m.fault
	}
	s.drop(at)
	return nil
}

// drop forgets a pair, and closes its channel unless others wait there, too.
func (s *unconfirmed) drop(at pair) {
	m := s.by[at]
	delete(s.by, at)
	s.count.Store(int32(len(s.by)))
	for _, other := range s.by {
		if other.channel == m.channel {
			return
		}
	}
	m.channel.Abandon()
	s.closed()
}

// Paused is a destination whose events are rejected unsent.
type Paused struct {
	Destination string
	Reason      sink.Reason
	Text        string
	Since       time.Time
}

// list returns the pairs that wait for their answer.
func (s *unconfirmed) list() (out []Paused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for at, m := range s.by {
		if m.over(now) {
			s.drop(at) // else the channel of a pair without further events would stay open
			continue
		}
		out = append(out, Paused{m.fault.Destination, m.fault.Reason, m.fault.Text, m.since})
	}
	return out
}

// accuseUnconfirmed rejects events whose destinations were late twice in a row. The others stay
// Unknown, which is an error. The channel is kept for the answers that are waited for.
func (l *lane) accuseUnconfirmed(ch *conn.Channel) error {
	if l.unconfirmed == nil {
		l.unconfirmed = map[pair]struct{}{}
	}
	doubt, kept := false, false
	for _, s := range l.sent {
		if l.outcomes[s.index].State != sink.Unknown {
			continue
		}
		l.stats.timeouts++
		dest, _ := l.routeAndSize(s.index)
		if _, again := l.unconfirmed[dest]; again {
			fault := &sink.Fault{
				Class: sink.Destination, Reason: sink.Unconfirmed, Destination: l.message.DestinationText(),
				Text: fmt.Sprintf("no answer for %s, twice, while the broker answers", l.sink.cfg.ConfirmTimeout),
			}
			l.reject(s.index, fault)
			now := time.Now()
			waits := &missing{
				channel: ch, answer: s.answer, fault: fault, since: now, until: now.Add(stuckAgain * l.sink.cfg.ConfirmTimeout),
			}
			kept = l.sink.unconfirmed.add(dest, waits) || kept
			continue
		}
		if len(l.unconfirmed) > 2*sink.MaxCallEvents {
			clear(l.unconfirmed)
		}
		l.unconfirmed[dest.clone()] = struct{}{}
		doubt = true
	}
	if kept {
		l.ch = nil
	} else {
		l.dropChannel()
	}
	if doubt {
		return fmt.Errorf("no confirm for %s while the broker answers", l.sink.cfg.ConfirmTimeout)
	}
	l.planNextRound()
	return nil
}

// forgetUnconfirmed forgets that the destinations of what was just confirmed were late.
func (l *lane) forgetUnconfirmed() {
	for _, s := range l.sent {
		if l.outcomes[s.index].State == sink.Confirmed {
			at, _ := l.routeAndSize(s.index)
			delete(l.unconfirmed, at)
		}
	}
	if len(l.unconfirmed) == 0 {
		l.unconfirmed = nil
	}
}
