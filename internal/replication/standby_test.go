package replication

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// waits counts the lines that say the relay waits.
func (b *bench) waits() int { return b.logs.FilterMessageSnippet("waiting for PostgreSQL").Len() }

func TestServerThatRefusesConnections(t *testing.T) {
	b := shared(t)
	p := b.through()
	var asked atomic.Int32 // the password is asked for at every connect
	b.cfg.Password = func() (string, error) { asked.Add(1); return "", nil }
	p.Cut()
	r := b.run()
	await.Until(t, "some attempts", func() bool { return asked.Load() > 5 })
	if p := r.s.Snapshot().Phase; p != Waiting {
		t.Errorf("phase %s", p)
	}
	if n := b.waits(); n != 1 {
		t.Errorf("%d lines for one reason", n)
	}
	if err := p.Mend(); err != nil {
		t.Fatal(err)
	}
	r.waitPhase(Streaming)
	r.endClean()
}

// A relay that waits can be stopped, and that is a clean stop: it has read nothing.
func TestStopWhileWaiting(t *testing.T) {
	b := shared(t)
	b.through().Cut()
	r := b.run()
	r.waitPhase(Waiting)
	r.endClean()
}

func TestWhatIsFatalWhenConnecting(t *testing.T) {
	refused := errors.New("dial tcp: connection refused")
	code := func(code string) error { return fmt.Errorf("connect: %w", &pgconn.PgError{Code: code}) }
	now, longAgo := time.Now(), time.Now().Add(-2*passwordPatience)
	for _, c := range []struct {
		what   string
		err    error
		ever   bool
		since  time.Time
		reason string // "": wait
	}{
		{"server absent", refused, false, longAgo, ""},
		{"server starting up", code("57P03"), false, longAgo, ""},
		{"wrong password at first", code("28P01"), false, now, ""},
		{"wrong password for a minute", code("28P01"), false, longAgo, "login"},
		{"no line in pg_hba.conf for a minute", code("28000"), false, longAgo, "login"},
		{"wrong password after it worked", code("28P01"), true, longAgo, ""},
		{"no such database", code("3D000"), false, now, "database"},
		{"no free walsender", code("53300"), false, now, "no_sender"},
		{"no free walsender after it worked", code("53300"), true, longAgo, ""},
		{"a right is missing", code("42501"), false, now, "rights"},
	} {
		err := fatalConnect(&Config{}, c.err, c.ever, c.since)
		if c.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		if stop := wantStop(t, err, outbox.ExitFailure, c.reason); stop.Mend == "" {
			t.Errorf("%s: no mend", c.what)
		}
	}
}
