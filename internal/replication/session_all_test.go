//go:build testall

package replication

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// A row that takes longer than wal_sender_timeout to arrive is no silence: taken for one, it would
// be begun again for ever.
func TestHugeRowOverASlowLine(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 4 * time.Second
	p := b.through()
	r := b.settledRun("a")
	p.Trickle(75 << 10)
	// 750 KiB
	b.exec(`INSERT INTO outbox SELECT 'huge', to_jsonb(string_agg(md5(g::text), '')) FROM generate_series(1, 24000) g`)
	r.waitSeen("huge")
	if sessions := r.sessions(); sessions != 1 {
		t.Errorf("%d sessions: the line was taken for dead", sessions)
	}
	p.Trickle(0)
	r.endClean()
}

// A line that counts a million deferred ordering groups takes longer to make than
// wal_sender_timeout: the session lives on meanwhile.
func TestLineThatTakesItsTime(t *testing.T) {
	b := shared(t)
	b.cfg.WALSenderTimeout = 5 * time.Second
	quick, made := b.cfg.NewLine, 0
	b.cfg.NewLine = func(ctx context.Context, at source.Term) (source.Line, error) {
		made++
		if !source.Sleep(ctx, 2*b.cfg.WALSenderTimeout) { // the time itself is what is tested
			return nil, ctx.Err()
		}
		return quick(ctx, at)
	}
	b.settledRun("a").endClean()
	if made != 1 {
		t.Errorf("%d lines were made, want 1", made)
	}
}
