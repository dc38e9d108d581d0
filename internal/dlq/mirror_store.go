// MirrorStore is the mirror's interface to the database. A dead letter that it reads becomes the
// message of the mirror.

package dlq

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// MirrorStore is the database of a Mirror: MirrorPostgres in production, memorytest.Store in the
// simulation. Both pass one suite (in retry/postgres). Each method is one statement in one round
// trip.
type MirrorStore interface {
	// Unmirrored reads the next dead letters above a number that are not recorded as mirrored, in
	// the order of their numbers: at most limit, and no further ones once these have size bytes.
	// Those whose contents were removed are no longer mirrored. Once a newer leader has raised the
	// epoch it returns an *event.Stop and no dead letters.
	Unmirrored(ctx context.Context, after int64, limit int, size int64) ([]DeadLetterRow, error)
	// NoteMirrored records that dead letters were mirrored. Once a newer leader has raised the
	// epoch it changes nothing and returns an *event.Stop.
	NoteMirrored(ctx context.Context, ns []int64) error
}

// DeadLetterRow is a dead letter as a Mirror reads it.
type DeadLetterRow struct {
	N int64
	// Event is the dead-lettered event, with the Route it was going to. What is not in a copy
	// (Traceparent, Headers, Columns) is left out; Raw is set when it could not be decoded.
	Event               event.Event
	Class, Reason, Text string // of the last rejection
	Attempts            int
	First, Last         *time.Time // of the rejections; nil without one
	Died                time.Time
}

// MirrorPostgres is the MirrorStore in PostgreSQL, for one slot.
type MirrorPostgres struct {
	DB       Querier
	Slot     string
	SystemID string
	Epoch    int64 // of this term: nothing is read or changed once the slot has another one

	patience time.Duration // as of a term
}

func (p *MirrorPostgres) term() *term {
	return &term{db: p.DB, slot: p.Slot, epoch: p.Epoch, patience: p.patience}
}

// NoteMirrored implements MirrorStore.
func (p *MirrorPostgres) NoteMirrored(ctx context.Context, ns []int64) error {
	return p.term().change(ctx, "note mirrored dead letters", `, noted AS (UPDATE cdc_relay.dead_letter t SET mirrored_at = now() FROM fence
			WHERE t.slot = $1 AND t.system_id = $3 AND t.n = ANY ($4) AND t.mirrored_at IS NULL)
		SELECT `+ours, []any{p.SystemID, ns})
}

// Unmirrored implements MirrorStore.
func (p *MirrorPostgres) Unmirrored(ctx context.Context, after int64, limit int, size int64) (list []DeadLetterRow, err error) {
	err = p.term().read(ctx, "read dead letters for the mirror", ` SELECT `+ours+`, t.n, t.commit_lsn::text, t.idx, t.commit_time, t.event_time, t.id, t.key, t.aggregate, t.type,
			t.payload, t.payload_kind, t.raw, t.route_name, t.routing_key, t.class, t.reason, t.error, t.attempts, t.first_failed_at, t.failed_at, t.died_at
		FROM (SELECT n AS x, sum(bytes) OVER (ORDER BY n) - bytes AS before FROM (SELECT n, bytes FROM cdc_relay.dead_letter
				WHERE slot = $1 AND system_id = $3 AND mirrored_at IS NULL AND state <> 'purged' AND redacted_at IS NULL AND n > $4
				ORDER BY n LIMIT $5) page) part
			JOIN cdc_relay.dead_letter t ON t.n = x
		WHERE before < $6 ORDER BY t.n`, []any{p.SystemID, after, limit, size}, func(scan func(...any) error) error {
		l := DeadLetterRow{Event: event.Event{Route: &event.Route{}}}
		ev := &l.Event
		err := scan(&l.N, &ev.Position.Commit, &ev.Position.Index, &ev.CommitTime, &ev.Time, &ev.ID, &ev.Key, &ev.Aggregate, &ev.Type, &ev.Payload, &ev.PayloadKind,
			&ev.Raw, &ev.Route.Name, &ev.Route.RoutingKey, &l.Class, &l.Reason, &l.Text, &l.Attempts, &l.First, &l.Last, &l.Died)
		list = append(list, l)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// A dead letter may be dead because of its id, type, key or headers: the mirror's message has only
// those that any broker accepts.
const (
	maxShort = 255  // bytes of a message id and a type: AMQP's short strings
	maxKey   = 1024 // bytes of an aggregate and a key
)

// facts are the headers of a mirrored dead letter, besides cdc_position, which the sink writes.
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

// copy makes the message of a dead letter. One that could not be decoded is sent as the whole row,
// in JSON.
func (l *DeadLetterRow) copy(to *event.Route, columns int) *event.Event {
	dead := &l.Event
	ev := &event.Event{
		Position: dead.Position, CommitTime: dead.CommitTime, Time: dead.Time,
		ID: short(dead.ID, maxShort), Aggregate: short(dead.Aggregate, maxKey), Key: short(dead.Key, maxKey), Type: short(dead.Type, maxShort),
		Payload: dead.Payload, PayloadKind: dead.PayloadKind, Columns: make([][]byte, columns), Route: to, Copy: true,
	}
	if ev.ID == nil {
		ev.ID = []byte(ev.Position.String()) // a message has an id
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

// short returns nil for a value that is too long for its place; a header has its beginning instead.
func short(b []byte, most int) []byte {
	if len(b) > most {
		return nil
	}
	return b
}

// cutText is the beginning of a text that may be very long.
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
