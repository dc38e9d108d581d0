package replication

import (
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
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
	if p := r.s.Snapshot().Phase; p != survey.Waiting {
		t.Errorf("phase %s", p)
	}
	if n := b.waits(); n != 1 {
		t.Errorf("%d lines for one reason", n)
	}
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	r.waitPhase(survey.Streaming)
	r.endClean()
}

// A relay that waits can be stopped, and that is a clean stop: it has read nothing.
func TestStopWhileWaiting(t *testing.T) {
	b := shared(t)
	b.through().Cut()
	r := b.run()
	r.waitPhase(survey.Waiting)
	r.endClean()
}
