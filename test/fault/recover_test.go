package fault

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A slot is lost while an application writes, and recover makes a new one while it goes on: each
// row arrives once, those of a key in the order of their commits, with positions that rise. The
// rows are deferred by a command that has no broker: it does not know the partitions of a topic.
func TestRecoverUnderLoad(t *testing.T) {
	stand.Parallel(t)
	pg := started(t)(pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{"track_commit_timestamp": "on"}}))
	s := stand.On(t, pg, stand.SharedKafka(t))
	r := s.Start()
	s.Deliver(30)
	stopped(s, r, 0)
	s.Free()
	s.SQL(`SELECT pg_drop_replication_slot($1)`, s.Slot)
	var since string
	s.Query([]any{&since}, `SELECT clock_timestamp()::text`)
	s.Write(300)
	s.Exits(s.Launch(), 3, "no longer exists")
	stop := s.Load(300)
	// Without the condition what was delivered last comes again, at another position.
	res := s.Command("recover", "--where", fmt.Sprintf("created_at > '%s'", since))
	if res.Code != 0 || !strings.Contains(res.Stdout, "order: commit timestamps") {
		t.Fatalf("exit %d: %s%s", res.Code, res.Stdout, res.Stderr)
	}
	s.Start()
	s.Write(100)
	stop()
	v := s.Check(0)
	if v.Committed < 400 {
		t.Errorf("%d rows were committed", v.Committed)
	}
}
