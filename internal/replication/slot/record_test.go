package slot

import (
	"context"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// leading is a database in which a relay raises its flush limit and reports up to it before each
// question.
type leading struct {
	source.Querier
	at pglogrepl.LSN
}

func (l *leading) QueryRow(context.Context, string, ...any) pgx.Row {
	l.at += 0x100
	return l
}

func (l *leading) Scan(into ...any) error {
	for _, target := range into {
		if lsn, ok := target.(*pglogrepl.LSN); ok {
			*lsn = l.at
		}
	}
	return nil
}

// The slot of a relay that runs does not look as if it had been moved.
func TestReadBothBesideALeader(t *testing.T) {
	rec, view, err := ReadBoth(t.Context(), &leading{}, "shop")
	if err == nil {
		err = CheckPosition(&source.Config{Slot: "shop"}, rec, view, 0)
	}
	if err != nil {
		t.Error(err)
	}
}
