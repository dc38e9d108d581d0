package cli

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// What the console asks the API for, of a relay at work: rows are sent again, their destination is
// paused and tried, and all that is in the audit, the history and the status.
func TestAPIOfTheConsole(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 1)
	o := &operated{r.brokered, r.relay}
	send := func(path, body string, code int, words ...string) {
		t.Helper()
		got, answer := o.send("POST", path, body)
		if got != code {
			t.Errorf("%s answers %d, want %d: %s", path, got, code, answer)
		}
		for _, w := range words {
			if !strings.Contains(answer, w) {
				t.Errorf("%s does not say %q: %s", path, w, answer)
			}
		}
	}
	id := ask[string](r.rig, `SELECT id::text FROM outbox WHERE aggregateid = 'a'`)
	choice := fmt.Sprintf(`{"ids": [%q], "exchange": "unbound", "reason": "bound late", `, id)
	send("/api/v1/resend", choice+`"dry_run": true}`, 200, `{"dry_run":true,"matched":1,"order":"unknown",`)
	send("/api/v1/resend", `{"ids": ["0198c7a2-41d8-7e5a-9d2c-5a3f6e0b1c11"]}`, 200, `{"matched":0}`)
	send("/api/v1/resend", `{"gap": 99}`, 400, "open gap 99")
	send("/api/v1/resend", choice+`"unordered": true}`, 202, `"kind":"resend","who":"token ann from 127.0.0.1","why":"bound late"`)

	const destination = "unbound/order.created"
	says(t, r.relay, "/api/v1/destinations", 200, `"destination":"exchange \"unbound\", routing key \"order.created\""`, `"reason":"unroutable"`, `"total":1`)
	// The timeline looks each second.
	says(t, r.relay, "/api/v1/history", 200, `routing key \"order.created\" is paused (unroutable)`)
	retry := "/api/v1/destinations/" + base64.RawURLEncoding.EncodeToString([]byte(destination)) + "/retry"
	send(retry, `{"reason": "it will be bound"}`, 202, `"kind":"retry"`, `"matched":1`)
	says(t, r.relay, "/api/v1/audit", 200, `"action":"retry"`, `"why":"it will be bound"`)
	// Bound before the request, the event could be delivered by a probe, and nothing were retried.
	must(t, r.late.QueueBind("late", "", "unbound", false, nil))
	r.wantInOrder(1, r.ofKey(1), "a")
	says(t, r.relay, "/api/v1/destinations", 200, `"items":[],"total":0`)
	await.Until(t, "its row has left the table", func() bool {
		return ask[int](r.rig, `SELECT count(*) FROM cdc_relay.retry WHERE slot = '`+r.slot+`'`) == 0
	})
	send(retry, "", 404, "no deferred event waits for "+destination)

	says(t, r.relay, "/api/v1/audit?who=token+ann+from+127.0.0.1&action=resend", 200, `"why":"bound late"`, "1 rows copied", `"next":""`)
	says(t, r.relay, "/api/v1/sent", 200, `"gaps":[]`, `"unsent_command":"cdc-relay resend --unsent --dry-run"`)
	says(t, r.relay, "/api/v1/config", 200, `{"key":"source.slot","value":"`+r.slot+`","default":false,"from":"`)
	says(t, r.relay, "/api/v1/history", 200, "This relay leads.", `routing key \"order.created\" is no longer paused.`, `"published_per_second":[`)
	says(t, r.relay, "/api/v1/status", 200, `"leader":{"name":"`, `"address":""}`, `"latency_p50_seconds":`)
	// It is of the last moments: events come until it is asked for in time.
	sent := 1
	eventually(t, func() string {
		sent++
		r.write("b", sent)
		_, status, err := r.relay.Get(await.Context(t), "/api/v1/status")
		must(t, err)
		if strings.Contains(status, `"latency_p50_seconds":null`) {
			return status
		}
		return ""
	})
}

// A standby names the leader, and by its admin.advertise where it answers.
func TestStandbyLinksTheLeader(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.admin += ", advertise: 'https://relay-0.internal:8464'"
	leader := r.start()
	second := *r
	second.admin = strings.Replace(r.admin, "relay-0", "relay-1", 1)
	standby := runner.Start(t, r.binary, second.yaml())
	says(t, standby, "/api/v1/status", 200, `"role":"standby","leader":{"name":"`, `"address":"https://relay-0.internal:8464"},"standbys":null`)
	says(t, leader, "/api/v1/status", 200, `"standbys":[{"name":"`, `,"address":"https://relay-1.internal:8464"}]`)
	if code := leader.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	must(t, standby.WaitReady(await.Context(t)))
	says(t, standby, "/api/v1/status", 200, `"role":"leader","leader":{"name":"`, `"address":"https://relay-1.internal:8464"},"standbys":[]`)
}
