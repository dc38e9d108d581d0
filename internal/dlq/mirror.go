package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// MirrorConfig is what a Mirror works with.
type MirrorConfig struct {
	DB       Querier
	Slot     string
	SystemID string
	Epoch    int64        // of this term: nothing is changed once it is not the slot's any more
	Route    outbox.Route // where letters are mirrored to
	Columns  int          // how many extra columns the sink expects of an event; the mirror leaves them NULL
	// Publish publishes the events and waits for what becomes of them: one outcome each. Those that are neither Confirmed
	// nor Rejected are offered again. It returns soon after ctx is done. IsMirrored tells these events from others.
	Publish func(ctx context.Context, events []*outbox.Event) []sink.Outcome
	// Mirrored and Failed count confirmed letters and refused attempts; either may be nil.
	Mirrored, Failed func(n int)
	Log              *zap.Logger
}

// Mirror publishes a copy of each dead letter: original body, headers that say what happened. It offers each until the
// broker has confirmed it; after a crash in between once more. One goroutine, for one term.
type Mirror struct {
	cfg MirrorConfig

	stop    chan struct{}
	stopped sync.Once
	refused map[int64]refusal // letters that the broker refuses for themselves: the others go on
	passed  int64             // more are refused than are remembered: those up to this one rest until passAt
	passAt  time.Time
	backoff time.Duration // of all, while the mirror's destination refuses
	said    string        // the last trouble that was logged
}

// refusal is when a letter is tried again.
type refusal struct {
	next    time.Time
	backoff time.Duration
}

// NewMirror makes a Mirror; it starts nothing.
func NewMirror(cfg MirrorConfig) *Mirror {
	return &Mirror{cfg: cfg, stop: make(chan struct{}), refused: map[int64]refusal{}}
}

const (
	mirrorTick  = time.Second // between two looks for new letters
	mirrorRows  = 200         // published at once
	mirrorBytes = 4 << 20     // likewise; one larger letter goes alone

	mirrorBackoff    = time.Second
	maxMirrorBackoff = time.Minute
	maxLetterBackoff = 10 * time.Minute
	maxRefused       = 1000 // letters whose refusal is remembered; beyond it those are passed that were tried
)

// IsMirrored reports whether an event is a copy that this Mirror publishes.
func (m *Mirror) IsMirrored(ev *outbox.Event) bool { return ev.Route == &m.cfg.Route }

// Stop has Run return once what is on its way is answered and noted, so that a clean stop repeats nothing.
func (m *Mirror) Stop() { m.stopped.Do(func() { close(m.stop) }) }

// Run mirrors until Stop, or until ctx is done, and returns nil then. Only a newer leader, an *outbox.Stop, ends it before.
func (m *Mirror) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.stop:
			return nil
		case <-timer.C:
		}
		wait, err := m.once(ctx, time.Now())
		var fenced *outbox.Stop
		switch {
		case ctx.Err() != nil:
			return nil // whatever it was, the term is over
		case errors.As(err, &fenced):
			return err
		case err != nil:
			m.say(err.Error())
			wait = mirrorTick
		}
		timer.Reset(wait)
	}
}

// once mirrors some letters and says how long to wait before the next ones.
func (m *Mirror) once(ctx context.Context, now time.Time) (wait time.Duration, err error) {
	letters, err := m.read(ctx, now)
	if err != nil || len(letters) == 0 {
		return mirrorTick, err
	}
	events := make([]*outbox.Event, len(letters))
	for i := range letters {
		events[i] = letters[i].event(&m.cfg.Route, m.cfg.Columns)
	}
	outcomes := m.cfg.Publish(ctx, events)
	var confirmed []int64
	var trouble *sink.Fault
	failed := 0
	for i, o := range outcomes {
		n := letters[i].n
		switch o.State {
		case sink.Confirmed:
			confirmed = append(confirmed, n)
			delete(m.refused, n)
		case sink.Rejected:
			failed++
			if trouble == nil || o.Fault.Class == sink.Destination {
				trouble = o.Fault
			}
			if o.Fault.Class != sink.Destination {
				m.refuse(n, now)
			}
		case sink.Unknown, sink.Unsent: // offered again
		}
	}
	if failed > 0 && m.cfg.Failed != nil {
		m.cfg.Failed(failed)
	}
	m.tell(trouble)
	if err := m.confirm(ctx, confirmed); err != nil {
		return 0, err
	}
	return m.pause(trouble, len(confirmed), len(letters)), nil
}

// pause is long while nothing can be mirrored, short while letters are left.
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

// refuse puts a letter off.
func (m *Mirror) refuse(n int64, now time.Time) {
	r, known := m.refused[n]
	if !known && len(m.refused) >= maxRefused {
		if m.passed == 0 {
			m.passAt = now.Add(maxLetterBackoff)
		}
		m.passed = max(m.passed, n)
		return
	}
	r.backoff = min(max(2*r.backoff, mirrorBackoff), maxLetterBackoff)
	r.next = now.Add(r.backoff)
	m.refused[n] = r
}

func (m *Mirror) tell(f *sink.Fault) {
	if f == nil {
		m.said = ""
		return
	}
	m.say(fmt.Sprintf("%s: %s: %s", f.Destination, f.Reason, f.Words))
}

func (m *Mirror) say(why string) {
	if why != m.said {
		m.cfg.Log.Warn("dead letters are not mirrored", zap.String("why", why))
	}
	m.said = why
}

// confirm notes that letters were mirrored.
func (m *Mirror) confirm(ctx context.Context, ns []int64) error {
	if len(ns) == 0 {
		return nil
	}
	l := Leader{cfg: LeaderConfig{DB: m.cfg.DB, Slot: m.cfg.Slot, Epoch: m.cfg.Epoch}}
	err := l.fenced(ctx, "note mirrored letters", `, noted AS (UPDATE cdc_relay.dead_letter t SET mirrored_at = now() FROM fence
			WHERE t.slot = $1 AND t.system_id = $3 AND t.n = ANY ($4) AND t.mirrored_at IS NULL)
		SELECT count(*) FROM fence`, []any{m.cfg.SystemID, ns})
	if err == nil && m.cfg.Mirrored != nil {
		m.cfg.Mirrored(len(ns))
	}
	return err
}

// letter is what the mirror needs of a dead letter.
type letter struct {
	n           int64
	commit      pglogrepl.LSN
	index       uint32
	commitTime  time.Time
	eventTime   time.Time
	id, key     []byte
	aggregate   []byte
	kind        []byte
	payload     []byte
	payloadKind outbox.PayloadKind
	raw         []byte
	name        []byte
	routingKey  []byte

	class, reason, words string
	attempts             int
	first, last          *time.Time
	died                 time.Time
}

// read takes the next letters, in the order of their numbers. Those whose contents were removed are not mirrored any more.
func (m *Mirror) read(ctx context.Context, now time.Time) ([]letter, error) {
	if !now.Before(m.passAt) {
		m.passed = 0
	}
	later := []int64{}
	for n, r := range m.refused {
		if now.Before(r.next) {
			later = append(later, n)
		}
	}
	slices.Sort(later)
	rows, err := m.cfg.DB.Query(ctx, `SELECT t.n, t.commit_lsn::text, t.idx, t.commit_time, t.event_time, t.id, t.key, t.aggregate, t.type, t.payload, t.payload_kind,
			t.raw, t.route_name, t.routing_key, t.class, t.reason, coalesce(e.text, ''), t.attempts, t.first_failed_at, t.failed_at, t.died_at
		FROM (SELECT n AS x, sum(bytes) OVER (ORDER BY n) - bytes AS before FROM (SELECT n, bytes FROM cdc_relay.dead_letter
				WHERE slot = $1 AND system_id = $2 AND mirrored_at IS NULL AND state <> 'purged' AND redacted_at IS NULL AND n <> ALL ($3) AND n > $6
				ORDER BY n LIMIT $4) page) part
			JOIN cdc_relay.dead_letter t ON t.n = x LEFT JOIN cdc_relay.error_text e ON e.id = t.error_id
		WHERE before < $5 ORDER BY t.n`, m.cfg.Slot, m.cfg.SystemID, later, mirrorRows, mirrorBytes, m.passed)
	if err != nil {
		return nil, explain("read letters for the mirror", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (letter, error) {
		var l letter
		err := row.Scan(&l.n, &l.commit, &l.index, &l.commitTime, &l.eventTime, &l.id, &l.key, &l.aggregate, &l.kind, &l.payload, &l.payloadKind,
			&l.raw, &l.name, &l.routingKey, &l.class, &l.reason, &l.words, &l.attempts, &l.first, &l.last, &l.died)
		return l, err
	})
	return list, explain("read letters for the mirror", err)
}
