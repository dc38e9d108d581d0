package replication

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// poolOf is a pool whose connections are compared with home.
func (b *bench) poolOf(at *source.Primary) *pgxpool.Pool {
	b.t.Helper()
	b.cfg.Primary = at
	pool := b.pool()
	return pool
}

// A primary that was cut off and the one that was promoted in its place can both be written to: the
// pool goes where the stream reads. A primary that is taken for want of the standby that source.url
// prefers is compared as well.
func TestPoolStaysOnTheServerOfTheStream(t *testing.T) {
	b := shared(t)
	b.cfg.URL += "&target_session_attrs=prefer-standby"
	stream, err := source.ConnectStream(await.Context(t), &b.cfg)
	await.Must(t, err)
	defer source.CloseStream(stream)
	here := source.ConnectedServer(stream).Server
	if id, err := slot.Identify(await.Context(t), stream); err != nil || here.SystemID != id.SystemID || here.Timeline != id.Timeline {
		t.Errorf("the stream is on %+v, and is taken to be on %+v (%v)", id, here, err)
	}
	var at source.Primary
	pool := b.poolOf(&at)
	for _, c := range []struct {
		at     source.Server
		reason string
	}{
		{here, ""},
		{source.Server{Started: here.Started}, ""}, // a server that does not say which it is
		{source.Server{SystemID: "42", Timeline: here.Timeline, Started: here.Started}, "slot_moved"},
		{source.Server{SystemID: here.SystemID, Timeline: here.Timeline + 1, Started: here.Started}, "slot_moved"},
	} {
		at.SetServer(c.at)
		pool.Reset()
		err := pool.Ping(await.Context(t))
		if c.reason == "" && err != nil {
			t.Errorf("met %+v: %v", c.at, err)
		}
		if c.reason != "" {
			b.wantStop(err, event.ExitOperator, c.reason)
		}
	}
}

// Connections that the pool made before the stream had met its server are used if they lead there.
func TestPoolIsMadeAgainWhereTheStreamGoes(t *testing.T) {
	b := shared(t)
	at := new(source.Primary)
	pool := b.poolOf(at)
	at.ServerChanged = pool.Reset
	backend := func() (pid int32) {
		t.Helper()
		await.Must(t, pool.QueryRow(await.Context(t), `SELECT pg_backend_pid()`).Scan(&pid))
		return pid
	}
	before := backend()
	stream, _, err := slot.Connect(await.Context(t), pool, &b.cfg)
	await.Must(t, err)
	source.CloseStream(stream)
	if backend() != before {
		t.Error("the connection to the same server is not used any more")
	}
	// those of another lifetime of the server are not
	server, resets := *at.Server.Load(), 0
	server.Started += " and again"
	at = &source.Primary{ServerChanged: func() { resets++ }}
	await.Must(t, b.poolOf(at).Ping(await.Context(t)))
	if !at.SetServer(server) || resets != 1 {
		t.Errorf("%d resets of the pool, want 1: what it was asked counts for nothing", resets)
	}

	moved := 0
	at = &source.Primary{ServerChanged: func() { moved++ }}
	for _, c := range []struct {
		id   source.Server
		want int
	}{{source.Server{SystemID: "1"}, 1}, {source.Server{SystemID: "1"}, 1}, {source.Server{SystemID: "1", Timeline: 2}, 2}, {source.Server{SystemID: "2", Timeline: 2}, 3}} {
		if at.SetServer(c.id); moved != c.want {
			t.Errorf("with %+v it has moved %d times, want %d", c.id, moved, c.want)
		}
	}
}

// waits counts the lines that say the relay waits.
func (b *bench) waits() int { return b.logs.FilterMessageSnippet("waiting for PostgreSQL").Len() }
