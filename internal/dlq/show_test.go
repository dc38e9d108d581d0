package dlq

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestShow(t *testing.T) {
	r := setup(t)
	n := r.put(sample{payload: []byte(`{"a": "б"}`), routingKey: "eu"})
	q := r.request(Replay, n)
	r.carryOut(q.ID, RequestFailed, "unroutable: NO_ROUTE")
	r.exec(`INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) VALUES ($1, '', 'ann', 'replay', $2, 'a test', 'failed')`, r.slot, n)
	q = r.request(Replay, n)
	d, err := r.admin.Show(r.ctx, DeadLetters, n, true)
	r.must(err)
	if d.State != Replaying || *d.ID != "e-1" || d.Destination != "orders/eu" || d.Error != "body of # bytes" || d.ContentType != "application/json" {
		t.Errorf("it is shown as %+v", d)
	}
	if *d.Payload.Text != `{"a": "б"}` || *d.Headers.Text != `{"h": 1}` || *d.Traceparent != "00-trace" {
		t.Errorf("its contents are shown as %+v", d)
	}
	if len(d.Columns) != 2 || d.Columns[0].Name != "a" || *d.Columns[0].Value.Text != "bc" || d.Columns[1].Name != "d" || d.Columns[1].Value != nil {
		t.Errorf("its columns are %+v", d.Columns)
	}
	if len(d.Requests) != 2 || d.Requests[0].ID != q.ID || d.Requests[1].Result != "unroutable: NO_ROUTE" || len(d.Audit) != 1 || d.Audit[0].Result != "failed" {
		t.Errorf("its history is %+v and %+v", d.Requests, d.Audit)
	}

	hidden, err := r.admin.Show(r.ctx, DeadLetters, n, false)
	r.must(err)
	if out, err := json.Marshal(hidden); err != nil || strings.Contains(string(out), "б") || strings.Contains(string(out), `\"h\"`) || !hidden.Payload.Hidden || hidden.Columns != nil {
		t.Errorf("payloads are not to be shown: %s, %v", out, err)
	}
	waits := r.put(sample{of: Deferred})
	for want, look := range map[string]struct {
		of *Table
		n  int64
	}{
		"there is no dead letter 99 of slot":            {DeadLetters, 99},
		"there is no deferred row 99 of slot":           {Deferred, 99},
		"it is deferred: cdc-relay deferred show 2":     {DeadLetters, waits},
		"it is a dead letter: cdc-relay dead-letters s": {Deferred, n},
	} {
		if _, err := r.admin.Show(r.ctx, look.of, look.n, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %s", look.n, err, want)
		}
	}
}

func TestContents(t *testing.T) {
	for in, want := range map[string]string{
		"":              `{"text":""}`,
		"{\n\t\"a\":1}": `{"text":"{\n\t\"a\":1}"}`,
		"\x00":          `{"base64":"AA=="}`,
		"\xff":          `{"base64":"/w=="}`,
		"\x1b[2J":       `{"base64":"G1sySg=="}`,
	} {
		out, err := json.Marshal(content([]byte(in), true))
		if err != nil || string(out) != want {
			t.Errorf("%q is %s, want %s", in, out, want)
		}
	}
	if content(nil, true) != nil || content(nil, false) != nil {
		t.Error("NULL has contents")
	}
}
