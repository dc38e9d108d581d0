package stdout

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/cloudevents"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a sink whose Run runs until the end of the test.
func running(t *testing.T, out io.Writer) *Sink {
	t.Helper()
	s := New(out, NewLines(nil))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestLines(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.FixedZone("", 7200))
	var out bytes.Buffer
	s := running(t, &out)
	call := []*event.Event{
		{ID: []byte("1"), Type: []byte("created"), Aggregate: []byte("order"), Key: []byte("42"), Payload: []byte(`{"a": [1, 2]}`), CommitTime: at},
		{ID: []byte("2"), Payload: []byte("a \"text\"\n"), PayloadKind: event.Text, CommitTime: at, Headers: []byte(`{"h": 1}`)},
		{ID: []byte("3"), Payload: []byte{0, 255}, PayloadKind: event.Binary, CommitTime: at},
		{ID: []byte("4"), CommitTime: at, Position: event.Position{Commit: 0x1A2B, Index: 7}},
		{Fault: errors.New("the id is NULL"), Hash: 5},
		{ID: []byte("6"), Payload: []byte{}, PayloadKind: event.Text, CommitTime: at},
		{ID: []byte("7"), Payload: []byte("[\n \"<a href='x'>\", \"&\" ]"), CommitTime: at, Headers: []byte(`{"h": "<&>"}`)},
		{ID: []byte("8"), Payload: []byte("<&>"), PayloadKind: event.Text, CommitTime: at},
	}
	outcomes := make([]sink.Outcome, len(call))
	if err := s.Publish(t.Context(), 0, call, outcomes); err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"1","type":"created","aggregate":"order","key":"42","payload":{"a":[1,2]},"position":"0000000000000000-00000000","commit_time":"2026-05-04T01:02:01.123456Z"}
{"id":"2","type":null,"aggregate":null,"key":null,"payload":"a \"text\"\n","headers":{"h":1},"position":"0000000000000000-00000000","commit_time":"2026-05-04T01:02:01.123456Z"}
{"id":"3","type":null,"aggregate":null,"key":null,"payload":"AP8=","payload_base64":true,"position":"0000000000000000-00000000","commit_time":"2026-05-04T01:02:01.123456Z"}
{"id":"4","type":null,"aggregate":null,"key":null,"payload":null,"position":"0000000000001a2b-00000007","commit_time":"2026-05-04T01:02:01.123456Z"}
{"id":"6","type":null,"aggregate":null,"key":null,"payload":"","position":"0000000000000000-00000000","commit_time":"2026-05-04T01:02:01.123456Z"}
{"id":"7","type":null,"aggregate":null,"key":null,"payload":["<a href='x'>","&"],"headers":{"h":"<&>"},"position":"0000000000000000-00000000","commit_time":"2026-05-04T01:02:01.123456Z"}
{"id":"8","type":null,"aggregate":null,"key":null,"payload":"<&>","position":"0000000000000000-00000000","commit_time":"2026-05-04T01:02:01.123456Z"}
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	for i, o := range outcomes {
		if i == 4 && (o.State != sink.Rejected || o.Fault.Reason != sink.Undecodable || o.Fault.Text != "the id is NULL") || i != 4 && o.State != sink.Confirmed {
			t.Errorf("event %d: %s %v", i, o.State, o.Fault)
		}
	}
}

// A rejected event is not overtaken by a later one of its key; other keys pass it. One that could
// not be decoded has no key.
func TestKeyStopsAtItsRejection(t *testing.T) {
	var out bytes.Buffer
	s := running(t, &out)
	call := []*event.Event{
		{ID: []byte("1"), Hash: 1, Ordered: true},
		{ID: []byte("2"), Hash: 1, Ordered: true, Payload: []byte("{")},
		{ID: []byte("3"), Hash: 2, Ordered: true},
		{ID: []byte("4"), Hash: 1, Ordered: true},
		{ID: []byte("5"), Hash: 1, Fault: errors.New("the id is NULL")},
	}
	outcomes := make([]sink.Outcome, len(call))
	if err := s.Publish(t.Context(), 0, call, outcomes); err != nil {
		t.Fatal(err)
	}
	for i, want := range []sink.State{sink.Confirmed, sink.Rejected, sink.Confirmed, sink.Unsent, sink.Rejected} {
		if outcomes[i].State != want {
			t.Errorf("event %d: %s, want %s", i+1, outcomes[i].State, want)
		}
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, out.String())
	}
}

// failing fails from its n-th write on.
type failing struct{ n int }

func (f *failing) Write(p []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWriteErrorIsUnavailable(t *testing.T) {
	out := &failing{n: 1}
	s := running(t, out)
	if up, why := s.Up(); !up || why != "" {
		t.Errorf("before the first write: up is %v, %q", up, why)
	}
	call := []*event.Event{{ID: []byte("1")}, {ID: []byte("2")}, {ID: []byte("3")}}
	outcomes := make([]sink.Outcome, 3)
	err := s.Publish(t.Context(), 0, call, outcomes)
	if err == nil {
		t.Fatal("no error")
	}
	for i, want := range []sink.State{sink.Confirmed, sink.Unknown, sink.Unsent} {
		if outcomes[i].State != want {
			t.Errorf("event %d: %s, want %s", i, outcomes[i].State, want)
		}
	}
	if up, why := s.Up(); up || why != "disk full" {
		t.Errorf("up is %v, %q", up, why)
	}
	out.n = 9
	if err := s.Publish(t.Context(), 0, call[1:], outcomes[1:]); err != nil {
		t.Fatal(err)
	}
	if up, why := s.Up(); !up || why != "" {
		t.Errorf("after a write that succeeded: up is %v, %q", up, why)
	}
}

// A pipe whose reader has gone ends Run; the event in doubt is not taken for written.
func TestReaderGone(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	s := New(write, NewLines(nil))
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	outcomes := make([]sink.Outcome, 2)
	if err := s.Publish(t.Context(), 0, []*event.Event{{ID: []byte("1")}, {ID: []byte("2")}}, outcomes); err == nil {
		t.Error("no error")
	}
	if outcomes[0].State != sink.Unknown || outcomes[1].State != sink.Unsent {
		t.Errorf("outcomes are %s, %s", outcomes[0].State, outcomes[1].State)
	}
	var stop *event.Stop
	if err := <-done; !errors.As(err, &stop) || stop.Code != event.ExitFailure {
		t.Errorf("Run returned %v", err)
	}
}

// TestTraceparentOfALine is the row's, or what the relay says; no member when there is none.
func TestTraceparentOfALine(t *testing.T) {
	row := &event.Event{ID: []byte("1"), Traceparent: []byte("the row's")}
	for name, c := range map[string]struct {
		says func(*event.Event, []byte) []byte
		want string
	}{
		"without a function": {nil, `"traceparent":"the row's"`},
		"ours":               {func(*event.Event, []byte) []byte { return []byte("ours") }, `"traceparent":"ours"`},
		"none":               {func(*event.Event, []byte) []byte { return nil }, ""},
	} {
		var rec sink.Record
		fault := NewLines(c.says).Encode(row, &rec)
		if text := rec.Value; fault != nil || !bytes.Contains(text, []byte(c.want)) || c.want == "" && bytes.Contains(text, []byte("traceparent")) {
			t.Errorf("%s: %s, %v", name, text, fault)
		}
	}
}

// CloudEvents are shown as the records that they would be on Kafka.
func TestCloudEvents(t *testing.T) {
	s := cloudevents.Default()
	s.Mode, s.Source = cloudevents.Binary, sink.MustTemplate("/shop")
	o := &sink.Opening{Encoder: func(columns []string, plain sink.Encoder) (sink.Encoder, error) {
		return s.Encoder(Driver().CloudEvents, columns, plain)
	}}
	opened, err := settings{}.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	shown := opened.(*Sink) //nolint:forcetypeassert // it is
	shown.out = &out
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	ev := &event.Event{ID: []byte("1"), Type: []byte("created"), Key: []byte("42"), Payload: []byte(`{"a": 1}`), Time: at, CommitTime: at}
	if err := shown.Publish(t.Context(), 0, []*event.Event{ev}, make([]sink.Outcome, 1)); err != nil {
		t.Fatal(err)
	}
	const position = `"0000000000000000-00000000"`
	const want = `{"topic":"stdout","key":"42","value":"{\"a\": 1}","headers":[{"name":"cdc_position","value":` + position + `},` +
		`{"name":"ce_specversion","value":"1.0"},{"name":"ce_id","value":"1"},{"name":"ce_source","value":"/shop"},{"name":"ce_type","value":"created"},` +
		`{"name":"ce_subject","value":"42"},{"name":"ce_time","value":"2026-05-04T03:02:01Z"},{"name":"ce_partitionkey","value":"42"},` +
		`{"name":"ce_sequence","value":` + position + `},{"name":"content-type","value":"application/json"}],"timestamp":"2026-05-04T03:02:01Z","position":` + position + `}` + "\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
