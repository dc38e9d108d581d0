package cli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// These tests have a relay at work, which carries out what operators ask for. An event without a
// type has no routing key: it is refused for good, and a replay with another routing key is not.

type operated struct {
	*brokered
	relay *runner.Relay
}

func withDeadLetters(t *testing.T, more string) *operated {
	t.Helper()
	b := withBroker(t)
	b.exec(`ALTER TABLE outbox ALTER type DROP NOT NULL`)
	b.more = more
	return &operated{b, b.start()}
}

// bad commits n events of a key that nobody can route, and waits until they are dead. It gives
// their numbers, oldest first.
func (o *operated) bad(key string, n int) (deadLetters []int64) {
	o.t.Helper()
	before := ask[int](o.rig, `SELECT count(*) FROM cdc_relay.dead_letter`)
	o.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, payload) SELECT gen_random_uuid(), 'order', $1, '{"secret": true}' FROM generate_series(1, $2)`, key, n)
	eventually(o.t, func() string {
		if got := ask[int](o.rig, `SELECT count(*) FROM cdc_relay.dead_letter`); got != before+n {
			return fmt.Sprintf("%d dead letters, want %d", got, before+n)
		}
		return ""
	})
	return ask[[]int64](o.rig, `SELECT array_agg(n ORDER BY n) FROM (SELECT n FROM cdc_relay.dead_letter ORDER BY n DESC LIMIT $1) l`, n)
}

// send is a request of the admin API.
func (o *operated) send(method, path, body string) (code int, answer string) {
	o.t.Helper()
	req, err := http.NewRequestWithContext(await.Context(o.t), method, o.relay.Admin()+path, strings.NewReader(body))
	must(o.t, err)
	req.Header.Set("Authorization", "Bearer toksecret-to-operate")
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	must(o.t, err)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	must(o.t, err)
	return resp.StatusCode, string(content)
}

func TestReplay(t *testing.T) {
	t.Parallel()
	o := withDeadLetters(t, "")
	n := o.bad("7", 1)[0]
	o.insert(1) // another key goes on
	must(t, o.consumer.WaitCount(await.Context(t), 1))
	id := ask[string](o.rig, `SELECT convert_from(id, 'UTF8') FROM cdc_relay.dead_letter`)

	line := o.refused(1, fmt.Sprint("dead-letters replay ", n), fmt.Sprintf("replay of dead letter %d failed: null_in_template: ", n))
	if strings.Contains(line, "secret") {
		t.Errorf("the line shows a payload: %s", line)
	}
	if got := o.ok("events", "show", id); !strings.Contains(got, fmt.Sprintf("dead letter: dead letter %d: open", n)) {
		t.Errorf("after a replay that failed it is\n%s", got)
	}
	if got := o.ok("dead-letters", "replay", fmt.Sprint(n), "--routing-key", "order.fixed", "--reason", "type added"); got != fmt.Sprintf("dead letter %d is replayed\n", n) {
		t.Errorf("a replay says %q", got)
	}
	must(t, o.consumer.WaitIDs(await.Context(t), []string{id}))
	last := o.consumer.Deliveries()[1]
	if !last.Replay || last.Key != "7" {
		t.Errorf("the message is %+v", last)
	}
	if got := o.ok("dead-letters", "replay", fmt.Sprint(n)); !strings.HasPrefix(got, fmt.Sprintf("dead letter %d was replayed already, at ", n)) {
		t.Errorf("once more it says %q", got)
	}
	o.refused(1, fmt.Sprint("dead-letters discard ", n), "it is replayed")
	closed := ask[time.Time](o.rig, `SELECT closed_at FROM cdc_relay.dead_letter`).UTC().Format(time.RFC3339)
	if got, want := o.ok("events", "show", id), "(replayed since "+closed+")"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
	shown := o.ok("dead-letters", "show", fmt.Sprint(n))
	for _, want := range []string{"dead letter " + fmt.Sprint(n) + ", replayed\n", ": replay by postgres at ", ": replay with routing key order.fixed by postgres at ", "(type added): done ", "null_in_template: ", "audit"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	if code := o.relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestAPIOfTheRetryTable(t *testing.T) {
	t.Parallel()
	o := withDeadLetters(t, "")
	ns := o.bad("7", 4)
	get := func(path string, code int, words ...string) {
		t.Helper()
		says(t, o.relay, path, code, words...)
	}
	first := fmt.Sprint(ns[0])
	get("/api/v1/dead-letters?key=7&limit=2", 200, fmt.Sprintf(`"n":%d`, ns[3]), `"next":"`)
	get("/api/v1/dead-letters/"+first, 200, `"text":"{\"secret\": true}"`)
	get("/api/v1/dead-letters/99999", 404, "there is no dead letter 99999")
	get("/api/v1/events/"+ask[string](o.rig, `SELECT convert_from(id, 'UTF8') FROM cdc_relay.dead_letter ORDER BY n LIMIT 1`), 200, `"state":"dead letter"`)
	get("/api/v1/events/nobody's", 200, `"state":"not in the table"`)
	send := func(method, path, body string, code int, words ...string) string {
		t.Helper()
		got, answer := o.send(method, path, body)
		if got != code {
			t.Errorf("%s %s answers %d, want %d: %s", method, path, got, code, answer)
		}
		for _, w := range words {
			if !strings.Contains(answer, w) {
				t.Errorf("%s %s does not say %q: %s", method, path, w, answer)
			}
		}
		return answer
	}
	send("POST", "/api/v1/dead-letters/"+first+"/replay", `{"routing_key": "order.fixed", "reason": "by hand"}`, 202, `"state":"waiting"`, `"who":"token ann from 127.0.0.1"`, `"why":"by hand"`)
	must(t, o.consumer.WaitCount(await.Context(t), 1))
	says(t, o.relay, "/api/v1/dead-letters/"+first, 200, `"state":"replayed"`)
	get("/api/v1/requests/1", 200, `"id":1`, `"state":"done"`)
	get("/api/v1/requests/99", 404, "there is no request 99")
	send("DELETE", "/api/v1/requests/1", "", 200, `"state":"done"`)
	send("POST", "/api/v1/dead-letters/"+first+"/replay", "", 200, "was replayed already")
	send("POST", "/api/v1/dead-letters/"+first+"/discard", "", 409, "it is replayed")
	send("POST", "/api/v1/dead-letters/discard", `{"key": "7", "dry_run": true}`, 200, `{"dry_run":true,"matched":3}`)
	send("POST", "/api/v1/dead-letters/discard", `{"key": "nobody's"}`, 200, `{"matched":0}`)
	job := decoded[struct{ ID int64 }](t, send("POST", "/api/v1/dead-letters/discard", `{"key": "7", "rate": 50}`, 202, `"matched":3`)).ID
	path := fmt.Sprint("/api/v1/jobs/", job)
	says(t, o.relay, path, 200, `"state":"done"`, `"done":3`)
	get("/api/v1/jobs", 200, fmt.Sprintf(`"items":[{"id":%d,`, job))
	send("DELETE", path, "", 200, `"state":"done"`)
	send("DELETE", "/api/v1/jobs/999", "", 404)
	send("DELETE", path+"?reason=a", `{"reason": "b"}`, 400, "twice")
	send("DELETE", path+"?why=a", "", 400, "why is not known")
	for i, why := range []string{"?reason=too+fast", ""} {
		// One that no leader ends meanwhile: it came with a copy of another system's database.
		slow := ask[int64](o.rig, `INSERT INTO cdc_relay.bulk (slot, system_id, kind, who, reason, matched, in_dead_letters) SELECT slot, '7', 'redact', 'eve', '', 1, true FROM cdc_relay.slots RETURNING job`)
		send("DELETE", fmt.Sprint("/api/v1/jobs/", slow, why), []string{"", `{"reason": "too fast"}`}[i], 200, `"state":"cancelled"`)
		if got := ask[string](o.rig, `SELECT who || ': ' || why FROM cdc_relay.audit WHERE action = 'cancel' AND result = $1`, fmt.Sprint("job ", slow)); got != "token ann from 127.0.0.1: too fast" {
			t.Errorf("the audit of job %d says %q", slow, got)
		}
	}
	send("POST", "/api/v1/dead-letters/purge", `{"all": true}`, 202, `"matched":4`)
	says(t, o.relay, "/api/v1/dead-letters", 200, `{"items":[],"next":""}`)
}
