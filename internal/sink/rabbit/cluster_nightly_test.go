//go:build nightly

package rabbit

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// The nodes of a real cluster: without a name they are taken with a warning, with one they are
// known.
func TestNodesOfACluster(t *testing.T) {
	cluster, err := rabbitserver.StartRabbitCluster(await.Context(t), 2, rabbitserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	b := connect(t, cluster.Nodes[0], cluster.Nodes[0].URL())
	b.exchange("events", nil)
	cfg := b.config()
	cfg.URLs = append(cfg.URLs, cluster.Nodes[1].URL())
	warnings := func() (n int) {
		for _, f := range Check(b.ctx, cfg) {
			if f.Warn {
				n++
			} else if !f.OK {
				t.Errorf("found %+v", f)
			}
		}
		return n
	}
	serves := func(s *Sink) {
		t.Helper()
		for _, url := range cfg.URLs {
			sess, err := s.dialer.DialOne(b.ctx, url)
			b.must(err)
			sess.Follow()
			sess.Close(conn.CloseTimeout)
		}
	}
	s, err := New(cfg)
	b.must(err)
	serves(s)
	if n := warnings(); n != 1 {
		t.Errorf("%d warnings about a cluster without a name", n)
	}
	_, err = b.real.Ctl(b.ctx, "set_cluster_name", "blue")
	b.must(err)
	s, err = New(cfg)
	b.must(err)
	serves(s)
	if n := warnings(); n != 0 {
		t.Errorf("%d warnings about a cluster with a name", n)
	}
}
