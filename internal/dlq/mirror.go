// The mirror publishes a copy of each dead letter, so that other programs can see what was given
// up.

package dlq

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// MirrorConfig is the configuration of a Mirror.
type MirrorConfig struct {
	Store MirrorStore
	Route event.Route // where the copies go
	// Columns is how many extra columns the sink expects of an event. The mirror leaves them NULL.
	Columns int
	// Publish publishes the events and waits for their outcomes, one for each. Events that are
	// neither Confirmed nor Rejected are offered again. It returns soon after ctx is done.
	Publish func(ctx context.Context, events []*event.Event) []sink.Outcome
	// Mirrored counts dead letters whose copy was confirmed, and Failed attempts that were
	// rejected. Either may be nil.
	Mirrored, Failed func(n int)
	Log              *zap.Logger
}

var _ MirrorStore = (*Term)(nil)

// Mirror publishes a copy of each dead letter: the original body, with headers that say what
// happened. It offers a copy until the broker has confirmed it; after a crash in between it may
// offer it once more. It works for one term, in one goroutine.
type Mirror struct {
	cfg MirrorConfig

	stop    chan struct{}
	stopped sync.Once
	// The mirror walks through the table by number. A dead letter that the broker rejects for a
	// fault of its own is skipped, so that the others go on, and is tried again in the next walk.
	// dead letters up to this number are left out until the next walk; 0 for none
	passed   int64
	nextWalk time.Time // when the next walk begins, while some are left out

	backoff time.Duration // for all dead letters, while the destination of the mirror refuses
	logged  logged
}

// NewMirror makes a Mirror. It starts nothing.
func NewMirror(cfg MirrorConfig) *Mirror {
	return &Mirror{cfg: cfg, stop: make(chan struct{})}
}

const (
	mirrorTick  = time.Second // between two looks for new dead letters
	mirrorRows  = 200         // dead letters that are published at once
	mirrorBytes = 4 << 20     // likewise, their bytes; a larger dead letter goes alone

	mirrorBackoff    = time.Second
	maxMirrorBackoff = time.Minute
	walkPause        = time.Minute // between two walks, while some dead letters are left out
	// maxWalk is when a walk ends that has left some out, even if new dead letters come faster than
	// it reads them.
	maxWalk = 10 * time.Minute
)

// Stop lets Run return once the copies in flight are answered and recorded, so that a clean stop
// repeats nothing.
func (m *Mirror) Stop() { m.stopped.Do(func() { close(m.stop) }) }

// Run mirrors until Stop is called or ctx is done, and returns nil then. Only a newer leader ends
// it earlier, with an *event.Stop.
func (m *Mirror) Run(ctx context.Context) error {
	return repeat(ctx, m.stop, func(now time.Time) (time.Duration, error) {
		wait, err := m.once(ctx, now)
		if err != nil {
			wait = mirrorTick
		}
		return wait, err
	}, func(why string) {
		if why != "" {
			m.logged.warn(m.cfg.Log, notMirrored, why)
		}
	})
}

const notMirrored = "dead letters are not mirrored"

// once mirrors some dead letters, and returns how long to wait before the next ones.
func (m *Mirror) once(ctx context.Context, now time.Time) (wait time.Duration, err error) {
	if !now.Before(m.nextWalk) {
		m.passed = 0
	}
	deadLetters, err := m.cfg.Store.Unmirrored(ctx, m.passed, mirrorRows, mirrorBytes)
	if err != nil || len(deadLetters) == 0 {
		if next := now.Add(walkPause); err == nil && next.Before(m.nextWalk) {
			m.nextWalk = next
		}
		return mirrorTick, err
	}
	events := make([]*event.Event, len(deadLetters))
	for i := range deadLetters {
		events[i] = deadLetters[i].copy(&m.cfg.Route, m.cfg.Columns)
	}
	outcomes := m.cfg.Publish(ctx, events)
	var confirmed []int64
	var trouble *sink.Fault
	failed := 0
	for i, o := range outcomes {
		n := deadLetters[i].N
		switch o.State {
		case sink.Confirmed:
			confirmed = append(confirmed, n)
		case sink.Rejected:
			failed++
			if trouble == nil || o.Fault.Class == sink.Destination {
				trouble = o.Fault
			}
			if o.Fault.Class != sink.Destination {
				if m.passed == 0 {
					m.nextWalk = now.Add(maxWalk)
				}
				m.passed = n
			}
		case sink.Unknown, sink.Unsent: // they are offered again
		}
	}
	if failed > 0 && m.cfg.Failed != nil {
		m.cfg.Failed(failed)
	}
	why := ""
	if trouble != nil {
		why = fmt.Sprintf("%s: %s: %s", trouble.Destination, trouble.Reason, trouble.Text)
	}
	m.logged.warn(m.cfg.Log, notMirrored, why)
	if len(confirmed) > 0 {
		if err := m.cfg.Store.NoteMirrored(ctx, confirmed); err != nil {
			return 0, err
		}
		if m.cfg.Mirrored != nil {
			m.cfg.Mirrored(len(confirmed))
		}
	}
	return m.pause(trouble, len(confirmed), len(deadLetters)), nil
}

// pause returns how long to wait: long while nothing can be mirrored, short while dead letters are
// left.
func (m *Mirror) pause(trouble *sink.Fault, confirmed, read int) time.Duration {
	switch {
	case confirmed > 0 || trouble != nil && trouble.Class != sink.Destination:
		m.backoff = 0
		if read < mirrorRows {
			return mirrorTick / 10
		}
		return 0
	default:
		m.backoff = min(max(2*m.backoff, mirrorBackoff), maxMirrorBackoff)
		return m.backoff
	}
}

// MirrorStore is the mirror's interface to the database. A dead letter that it reads becomes the
// message of the mirror.

// MirrorStore is the database of a Mirror: a Term in production, memorytest.Store in the
// simulation. Both pass one suite (in retry/postgres). Each method is one statement in one round
// trip.
type MirrorStore interface {
	// Unmirrored reads the next dead letters above a number that are not recorded as mirrored, in
	// the order of their numbers: at most limit, and none after these have size bytes. Dead letters
	// whose contents were removed are left out. Once a newer leader has raised the epoch it returns
	// an *event.Stop and no dead letters.
	Unmirrored(ctx context.Context, after int64, limit int, size int64) ([]DeadLetterRow, error)
	// NoteMirrored records that dead letters were mirrored. Once a newer leader has raised the
	// epoch it changes nothing and returns an *event.Stop.
	NoteMirrored(ctx context.Context, ns []int64) error
}

// DeadLetterRow is a dead letter as a Mirror reads it.
type DeadLetterRow struct {
	N int64
	// Event is the event of the dead letter, with the Route it was going to. Fields that a copy
	// does not have (Traceparent, Headers, Columns) are not set. Raw is set when the event could
	// not be decoded.
	Event               event.Event
	Class, Reason, Text string // of the last rejection
	Attempts            int
	First, Last         *time.Time // times of the first and last rejection; nil without one
	Died                time.Time
}

// NoteMirrored implements MirrorStore.
func (t *Term) NoteMirrored(ctx context.Context, ns []int64) error {
	return t.change(ctx, "note mirrored dead letters", `, noted AS (UPDATE cdc_relay.dead_letter t SET mirrored_at = now() FROM fence
			WHERE t.slot = $1 AND t.system_id = $3 AND t.n = ANY ($4) AND t.mirrored_at IS NULL)
		SELECT true FROM fence`, []any{t.SystemID, ns})
}

// Unmirrored implements MirrorStore.
func (t *Term) Unmirrored(ctx context.Context, after int64, limit int, size int64) (list []DeadLetterRow, err error) {
	err = t.readRows(ctx, "read dead letters for the mirror", ` SELECT t.n, t.commit_lsn::text, t.idx, t.commit_time, t.event_time, t.id, t.key, t.aggregate, t.type,
			t.payload, t.payload_kind, t.raw, t.route_name, t.routing_key, t.class, t.reason, t.error, t.attempts, t.first_failed_at, t.failed_at, t.died_at
		FROM fence LEFT JOIN ((SELECT n AS x, sum(bytes) OVER (ORDER BY n) - bytes AS before FROM (SELECT n, bytes FROM cdc_relay.dead_letter
				WHERE slot = $1 AND system_id = $3 AND mirrored_at IS NULL AND state <> 'purged' AND redacted_at IS NULL AND n > $4
				ORDER BY n LIMIT $5) page) part
			JOIN cdc_relay.dead_letter t ON t.n = x) ON before < $6 ORDER BY t.n`, []any{t.SystemID, after, limit, size}, func(rows pgx.Rows) error {
		l := DeadLetterRow{Event: event.Event{Route: &event.Route{}}}
		ev := &l.Event
		err := rows.Scan(&l.N, &ev.Position.Commit, &ev.Position.Index, &ev.CommitTime, &ev.Time, &ev.ID, &ev.Key, &ev.Aggregate, &ev.Type, &ev.Payload, &ev.PayloadKind,
			&ev.Raw, &ev.Route.Name, &ev.Route.RoutingKey, &l.Class, &l.Reason, &l.Text, &l.Attempts, &l.First, &l.Last, &l.Died)
		list = append(list, l)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// A dead letter may be dead because of its id, type, key or headers. So the mirror's message has
// only values that any broker accepts.
const (
	maxShort = 255  // bytes of a message id and a type, as in AMQP's short strings
	maxKey   = 1024 // bytes of an aggregate and a key
)

// facts are the headers of the mirror's message, besides cdc_position, which the sink writes.
type facts struct {
	ID          string `json:"event_id,omitempty"`
	Key         string `json:"event_key,omitempty"`
	Reason      string `json:"failure_reason"`
	Class       string `json:"failure_class"`
	FailedAt    string `json:"failed_at"`
	FirstFailed string `json:"first_failed_at"`
	Attempts    int    `json:"attempts"`
	Destination string `json:"original_destination"`
}

// copy makes the mirror's message of a dead letter. An event that could not be decoded is sent as
// its whole row, in JSON.
func (l *DeadLetterRow) copy(to *event.Route, columns int) *event.Event {
	dead := &l.Event
	ev := &event.Event{
		Position: dead.Position, CommitTime: dead.CommitTime, Time: dead.Time,
		ID: short(dead.ID, maxShort), Aggregate: short(dead.Aggregate, maxKey), Key: short(dead.Key, maxKey), Type: short(dead.Type, maxShort),
		Payload: dead.Payload, PayloadKind: dead.PayloadKind, Columns: make([][]byte, columns), Route: to, Copy: true,
	}
	if ev.ID == nil {
		ev.ID = []byte(ev.Position.String()) // every message needs an id
	}
	if dead.Raw != nil {
		ev.Payload, ev.PayloadKind = dead.Raw, event.JSON
	}
	ev.Hash = uint64(*event.Digest(ev.Position.Append(nil)))
	last := l.Died
	if l.Last != nil {
		last = *l.Last
	}
	first := last
	if l.First != nil {
		first = *l.First
	}
	f := facts{
		ID: cutText(dead.ID), Key: cutText(dead.Key), Reason: reasonText(l.Reason, l.Text), Class: l.Class,
		FailedAt: stamp(last), FirstFailed: stamp(first), Attempts: l.Attempts,
		Destination: cutText([]byte(destination(dead.Route.Name, dead.Route.RoutingKey))),
	}
	ev.Headers, _ = json.Marshal(&f) //nolint:errcheck // strings and a number are always JSON
	return ev
}

// short returns nil for a value that is too long for its place. facts has the beginning of it
// instead.
func short(b []byte, most int) []byte {
	if len(b) > most {
		return nil
	}
	return b
}

// cutText returns the beginning of a text that may be very long.
func cutText(b []byte) string {
	if len(b) <= maxKey {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:maxKey]), "") + "…"
}

func reasonText(reason, text string) string {
	if text == "" {
		return reason
	}
	return reason + ": " + text
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
