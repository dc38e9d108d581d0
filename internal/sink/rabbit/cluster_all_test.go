//go:build testall

package rabbit

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// A cluster that is renamed under the relay is another one: as when an address leads to another
// broker. The connections that stand are kept. The next one is refused, and nothing is sent or
// rejected until the address leads back, or the relay is started again.
func TestClusterRenamed(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	before := strings.Trim(b.eval("binary_to_list(rabbit_nodes:cluster_name())."), "\"\n")
	rename := func(name string) { b.eval(`rabbit_nodes:set_cluster_name(<<"%s">>, <<"a test">>).`, name) }
	t.Cleanup(func() { b.eval(`rabbit_runtime_parameters:clear_global(cluster_name, <<"a test">>).`) })
	core, lines := observer.New(zap.InfoLevel)
	cfg := b.config()
	cfg.Log = zap.New(core)
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("k", "created")))
	rename("renamed")
	wantConfirmed(t, s.send(newEvent("k", "created")))
	s.firstSession().Kill(errors.New("the test ends it"))
	await.Until(t, "refused", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "is of cluster renamed, the relay has begun with "+before) && strings.Contains(why, "restart the relay")
	})
	ctx, cancel := context.WithCancel(b.ctx)
	waits, outcomes, ended := events(10, "created"), make([]sink.Outcome, 10), make(chan error, 1)
	go func() { ended <- s.Publish(ctx, 1, waits, outcomes) }()
	_, err := s.cfg.Dial(b.ctx, nil)
	if !errors.Is(err, errOtherCluster) {
		t.Errorf("connect: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("publish: %v", err)
	}
	for i, o := range outcomes {
		if o.State != sink.Unsent {
			t.Errorf("event %d: %s %v", i, o.State, o.Fault)
		}
	}
	if n := b.depth("events"); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}

	// Of a list with addresses of both, check finds the second at fault, and the one that is
	// connected to first serves all connections.
	shared := servers.SharedVHost(t)
	cfg.URLs = append(cfg.URLs, shared)
	wantFinding(t, Check(b.ctx, cfg), "broker", false, "the relay has begun with renamed", "lead to that cluster")
	list, err := New(cfg)
	b.must(err)
	served := ""
	for range 8 { // they begin at any address of the list
		sess, err := list.cfg.Dial(b.ctx, nil)
		b.must(err)
		if served = cmp.Or(served, sess.Address); sess.Address != served {
			t.Errorf("connected to %s and to %s", served, sess.Address)
		}
		sess.Close(conn.CloseTimeout)
	}
	cfg.URLs = cfg.URLs[:1]
	restarted := start(t, cfg)
	wantConfirmed(t, restarted.send(newEvent("k", "created")))
	restarted.end()

	// Two nodes without a cluster's name are taken, with a warning.
	rename("rabbit@elsewhere")
	nameless, err := New(cfg)
	b.must(err)
	for _, url := range []string{b.url, shared} {
		sess, err := nameless.cfg.DialOne(b.ctx, url, nil)
		b.must(err)
		if doubt := nameless.clusterDoubt(sess); (doubt != "") != (url == shared) {
			t.Errorf("%s: %q", url, doubt)
		}
		sess.Close(conn.CloseTimeout)
	}
	rename(before)
	wantConfirmed(t, s.send(waits...))
	if n := lines.FilterMessage("broker unavailable").Len(); n != 2 { // the end, and the refusal
		t.Errorf("%d lines: %+v", n, lines.All())
	}
}
