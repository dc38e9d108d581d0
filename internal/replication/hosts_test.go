package replication

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// poolOf is a pool whose connections are compared with home.
func (b *bench) poolOf(at *home) *pgxpool.Pool {
	b.t.Helper()
	b.cfg.home = at
	pool, err := connectPool(&b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool
}

// A primary that is taken for want of the standby that source.url prefers is compared as well.
func TestPoolStaysOnTheServerOfTheStreamAlsoIfItPrefersAStandby(t *testing.T) {
	b := shared(t)
	b.cfg.URL += "&target_session_attrs=prefer-standby"
	stream, err := connectStream(await.Context(t), &b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeStream(stream)
	here := serverOf(stream).server
	if id, err := identify(await.Context(t), stream); err != nil || here.SystemID != id.SystemID || here.Timeline != id.Timeline {
		t.Errorf("the stream is on %+v, and is taken to be on %+v (%v)", id, here, err)
	}
	var at home
	pool := b.poolOf(&at)
	for _, c := range []struct {
		at     server
		reason string
	}{
		{here, ""},
		{server{Started: here.Started}, ""}, // a server that does not say which it is
		{server{SystemID: "42", Timeline: here.Timeline, Started: here.Started}, "slot_moved"},
		{server{SystemID: here.SystemID, Timeline: here.Timeline + 1, Started: here.Started}, "slot_moved"},
	} {
		at.meet(c.at)
		pool.Reset()
		err := pool.Ping(await.Context(t))
		if c.reason == "" && err != nil {
			t.Errorf("met %+v: %v", c.at, err)
		}
		if c.reason != "" {
			wantStop(t, err, outbox.ExitOperator, c.reason)
		}
	}
}

// Connections that the pool made before the stream had met its server are not used any more.
func TestPoolIsMadeAnewWhereTheStreamGoes(t *testing.T) {
	b := shared(t)
	at := new(home)
	pool := b.poolOf(at)
	at.moved = pool.Reset
	backend := func() (pid int32) {
		t.Helper()
		if err := pool.QueryRow(await.Context(t), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	before := backend()
	stream, _, err := meetServer(await.Context(t), pool, &b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeStream(stream)
	if backend() == before {
		t.Error("a connection from before is used")
	}

	moved := 0
	at = &home{moved: func() { moved++ }}
	for _, c := range []struct {
		id   server
		want int
	}{{server{SystemID: "1"}, 1}, {server{SystemID: "1"}, 1}, {server{SystemID: "1", Timeline: 2}, 2}, {server{SystemID: "2", Timeline: 2}, 3}} {
		if at.meet(c.id); moved != c.want {
			t.Errorf("with %+v it has moved %d times, want %d", c.id, moved, c.want)
		}
	}
}
