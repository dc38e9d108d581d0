// This file is for tests that only look: they share one database, or one running relay, instead of
// making their own.
package cli

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// shared is something that several tests look at. Each joins before it calls Parallel: so all
// users are known when the first of them runs, and the last one ends it.
type shared struct {
	setup func(r *rig) (end func(t *testing.T)) // on an empty database

	mu    sync.Mutex
	users int
	rig   *rig
	end   func(t *testing.T)
}

// join counts a user in. What it returns makes the thing, or gives the one that is there.
func (s *shared) join(t *testing.T) func() *rig {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 && s.end != nil {
			s.end(t)
			s.rig, s.end = nil, nil
		}
	})
	return func() *rig {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rig == nil && s.end == nil {
			s.prepare(t)
		}
		if s.rig == nil {
			t.Fatal("what this test looks at could not be made")
		}
		r := *s.rig
		r.t = t
		return &r
	}
}

func (s *shared) prepare(t *testing.T) {
	t.Helper()
	server, name := servers.SharedPostgres(t), "t"+strings.ToLower(rand.Text()[:12])
	must(t, server.CreateDatabase(await.Context(t), name))
	drop := func(t *testing.T) { must(t, server.DropDatabase(context.Background(), name)) }
	s.end = drop
	r := on(t, server.URL(name))
	r.exec(load.OutboxTable)
	if end := s.setup(r); end != nil {
		s.end = func(t *testing.T) {
			end(t)
			drop(t)
		}
	}
	s.rig = r
}

// aRetryTable has dead letters 1 to 7 and deferred rows 8 and 9, as refuse makes them, but for a
// long payload of dead letter 7, and row ofOutbox in the outbox.
var aRetryTable = &shared{setup: func(r *rig) func(t *testing.T) {
	r.refuse(7, 2)
	r.exec(`UPDATE cdc_relay.dead_letter SET payload = convert_to(repeat('x', 5000), 'UTF8') WHERE n = 7`)
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES ($1, 'a', 'k', 't')`, ofOutbox)
	return nil
}}

const ofOutbox = "11111111-1111-1111-1111-111111111111"

// aRelay is a relay at work that has sent two events to stdout. What its admin port says about
// events is for those who have a token.
var aRelay = &shared{setup: func(r *rig) func(t *testing.T) {
	r.admin = ", tokens: [{name: ops, role: operate, value: toksecret-operate}, {name: ann, role: read, value: toksecret-to-read}]"
	relay, err := runner.LaunchRelay(r.binary, r.yaml())
	must(r.t, err)
	must(r.t, relay.WaitReady(await.Context(r.t)))
	r.insert(2)
	eventually(r.t, func() string { return wantLines(relay, 2) })
	r.relay = relay
	return func(t *testing.T) {
		relay.CheckLeaks(t)
		if code := relay.Stop(t); code != 0 {
			t.Errorf("exit %d", code)
		}
		hidden(t, relay.Log())
	}
}}
