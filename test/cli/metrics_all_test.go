//go:build testall

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// The slots of others are told beside ours, by the metrics and by the API, for whoever may read.
// Ours is 0 seconds behind as long as there is no event to send, whatever else is written;
// another's is behind that WAL.
func TestSlotsOfOthers(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	p := proxy(t, b.broker.Addr())
	b.sink = "  rabbitmq: {url: '" + through(b.vhost, p.Addr()) + "'}"
	b.admin = ", token: operate, read_token: read"
	other := b.slot + "_other"
	b.exec(`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, other)
	b.exec(`CREATE TABLE filler (t text)`)
	relay := b.start()
	eventually(t, func() string { return has(t, relay, "outbox_slot_active", other, 0, 0) })
	b.exec(`INSERT INTO filler SELECT repeat('x', 500) FROM generate_series(1, 1000)`)
	eventually(t, func() string {
		for _, why := range []string{
			has(t, relay, "outbox_slot_lag_seconds", other, 1, 1e9), has(t, relay, "outbox_slot_lag_bytes", other, 5e5, 1e12),
			has(t, relay, "outbox_slot_retained_bytes", other, 5e5, 1e12), has(t, relay, "outbox_slot_lag_seconds", b.slot, 0, 0),
			has(t, relay, "outbox_slot_active", b.slot, 1, 1),
		} {
			if why != "" {
				return why
			}
		}
		return ""
	})
	// The broker goes: an event waits, and ours is behind since its commit.
	p.Cut()
	b.insert(1)
	eventually(t, func() string { return has(t, relay, "outbox_slot_lag_seconds", b.slot, 2, 1e9) })

	answers := func(token string) (code int, body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(await.Context(t), http.MethodGet, relay.Admin()+"/api/v1/slots", nil)
		must(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(request)
		must(t, err)
		defer answer.Body.Close()
		content, err := io.ReadAll(answer.Body)
		must(t, err)
		return answer.StatusCode, string(content)
	}
	if code, body := answers("nobody's"); code != http.StatusUnauthorized {
		t.Errorf("without a token it answers %d %s", code, body)
	}
	code, body := answers("read")
	var slots ops.Slots
	if err := json.Unmarshal([]byte(body), &slots); err != nil || code != http.StatusOK {
		t.Fatalf("it answers %d %s: %v", code, body, err)
	}
	found := map[string]ops.SlotItem{}
	for _, i := range slots.Items {
		found[i.Name] = i
	}
	ours, others := found[b.slot], found[other]
	if ours != slots.Items[0] || !ours.Own || ours.LagFrom != "commits" || ours.Plugin != "pgoutput" || !ours.Active || ours.LagSeconds == nil || *ours.LagSeconds < 2 {
		t.Errorf("ours is %+v", ours)
	}
	if others.Own || others.LagFrom != "wal" || others.Plugin != "test_decoding" || others.Active || others.LagBytes < 5e5 || others.LagSeconds == nil || *others.LagSeconds < 1 || others.Database != ours.Database {
		t.Errorf("the other is %+v", others)
	}
	must(t, p.Restore())
	must(t, b.consumer.WaitCount(await.Context(t), 1))
	eventually(t, func() string { return has(t, relay, "outbox_slot_lag_seconds", b.slot, 0, 0) })
	b.exec(`SELECT pg_drop_replication_slot($1)`, other)
	eventually(t, func() string {
		if why := has(t, relay, "outbox_slot_lag_bytes", other, 0, 1e18); why == "" {
			return "the slot is gone, and still told"
		}
		return ""
	})
}

// A scrape is answered beside a thousand connections that ask nothing, and events go on.
func TestIdleConnectionsToTheAdminServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay := r.start()
	for range 1000 {
		conn, err := new(net.Dialer).DialContext(await.Context(t), "tcp", strings.TrimPrefix(relay.Admin(), "http://"))
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	r.insert(3)
	eventually(t, func() string { return wantLines(relay, 3) })
	eventually(t, func() string {
		if got := scrape(t, relay).values[`outbox_events_total{outcome="published"}`]; got != 3 {
			return fmt.Sprintf("%g are published", got)
		}
		return ""
	})
	if why := answers(t, relay, "/healthz", 200, `"healthy":true`); why != "" {
		t.Error(why)
	}
}
