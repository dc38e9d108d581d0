//go:build testall

package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestCheckPublishesToKafka(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 3)
	k.ok("init")
	res := k.command("check", "--publish", "--key", "7", "--json")
	if f := line(t, res, "test message"); res.Code != 0 || f.Level != "ok" || !strings.Contains(f.Detail, k.topic) {
		t.Errorf("exit %d: %+v", res.Code, f)
	}
	r := k.records(k.topic, 1)[0]
	if !strings.HasPrefix(r.Header("id"), "cdc-relay-check-") || r.Header("cdc_check") != "true" || string(r.Key) != "7" || string(r.Value) != `{"cdc_check": true}` {
		t.Errorf("what came is %+v", r)
	}
	k.publishTo(k.kafka.Brokers(), k.topic+"{aggregate}")
	k.refused(2, "check --publish", "--aggregate VALUE")
	res = k.command("check", "--publish", "--aggregate", "x", "--json")
	if f := line(t, res, "test message"); res.Code != 1 || f.Level != "fail" || !strings.Contains(f.Detail, "no_topic") || !strings.Contains(f.Fix, "--create --topic "+k.topic+"x") {
		t.Errorf("without a topic: exit %d: %+v", res.Code, f)
	}
	k.publishTo(k.kafka.Brokers(), k.topic+"{type}")
	if f := line(t, k.command("check", "--json"), "ordering"); f.Level != "warn" || !strings.Contains(f.Fix, k.topic+`"`) {
		t.Errorf("a topic of each type: %+v", f)
	}
}

// A PostgreSQL that takes connections and says nothing takes its own time, not the broker's.
func TestCheckOfASilentPostgreSQL(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	p := proxy(t, servers.SharedPostgres(t).Addr())
	p.Stall()
	b.db = through(b.db, p.Addr())
	res, err := runner.RunCommand(await.Context(t), b.binary, b.yaml(), "check", "--json")
	must(t, err)
	if f := line(t, res, "postgres"); res.Code != 1 || f.Level != "fail" {
		t.Errorf("exit %d: %+v", res.Code, f)
	}
	if f := line(t, res, `exchange "outbox.events"`); f.Level != "ok" {
		t.Errorf("%+v", f)
	}
}
