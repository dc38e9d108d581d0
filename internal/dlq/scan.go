package dlq

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// scanned is a row as columnsOf gives it, where that differs from a Row.
type scanned struct {
	commit             pglogrepl.LSN
	index              uint32
	id, aggregate      []byte
	key, kind          []byte
	name, routingKey   []byte
	committed, parked  time.Time
	first, last, next  *time.Time
	died, closed, sent *time.Time
}

func (s *scanned) into(r *Row) []any {
	return []any{
		&r.N, &r.Copied, &s.commit, &s.index, &s.id, &s.aggregate, &s.key, &s.kind, &s.committed, &r.PayloadBytes,
		&s.name, &s.routingKey, &r.Class, &r.Reason, &r.Error, &r.Accused, &r.Attempts, &s.first, &s.last, &s.parked,
		&s.next, &r.State, &s.died, &s.closed, &s.sent, &r.Redacted,
	}
}

func (s *scanned) finish(r *Row) {
	r.Position = outbox.Position{Commit: s.commit, Index: s.index}.String()
	r.ID, r.Aggregate, r.Key, r.Type = text(s.id), text(s.aggregate), text(s.key), text(s.kind)
	r.Destination = destination(s.name, s.routingKey)
	r.CommittedAt, r.ParkedAt = s.committed.UTC(), s.parked.UTC()
	r.FirstFailedAt, r.FailedAt, r.NextAttempt = utc(s.first), utc(s.last), utc(s.next)
	r.DiedAt, r.ClosedAt, r.MirroredAt = utc(s.died), utc(s.closed), utc(s.sent)
}

// destination is where a row goes, as Filter.Destination takes it.
func destination(name, routingKey []byte) string {
	if routingKey == nil {
		return string(name)
	}
	return string(name) + "/" + string(routingKey)
}

func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
