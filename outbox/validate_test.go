package outbox_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/outbox"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]outbox.Config{
		`Table is "a.b.c"`:                             {Table: "a.b.c"},
		`Table is "a."`:                                {Table: "a."},
		`k": want a name of 1 to 63 bytes`:             {Columns: outbox.Columns{Key: strings.Repeat("k", 64)}},
		`Columns.Key and Columns.Type are both "type"`: {Columns: outbox.Columns{Key: "type"}},
		"Columns.Payload is NoColumn":                  {Columns: outbox.Columns{Payload: outbox.NoColumn}},
		"Prefix has a NUL":                             {Prefix: "a\x00"},
		"MaxPayload is negative":                       {MaxPayload: -1},
		`AllowHeaders has "x-Delay"`:                   {AllowHeaders: []string{"x-Delay"}},
	} {
		if _, err := outbox.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}

// What can never be delivered is refused with its place and its reason before anything is sent: the
// nil transaction is not asked.
func TestInvalid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	with := func(change func(*outbox.Event)) outbox.Event {
		ev := outbox.Event{Aggregate: "order", Key: "k", Type: "created", Payload: 1}
		change(&ev)
		return ev
	}
	payload := func(p any) outbox.Event { return with(func(ev *outbox.Event) { ev.Payload = p }) }
	header := func(name, value string) outbox.Event {
		return with(func(ev *outbox.Event) { ev.Headers = map[string]string{name: value} })
	}
	small, err := outbox.New(outbox.Config{MaxPayload: 10, AllowHeaders: []string{"CC", "x-delay"}})
	must(t, err)
	for _, tc := range []struct {
		want  string
		event outbox.Event
	}{
		{"aggregate is empty", with(func(ev *outbox.Event) { ev.Aggregate = "" })},
		{"type is empty", with(func(ev *outbox.Event) { ev.Type = "" })},
		{"the routing key (aggregate.type) has 256 bytes, the limit is 255", with(func(ev *outbox.Event) { ev.Type = long[:250] })},
		{"id is no UUID", with(func(ev *outbox.Event) { ev.ID = "42" })},
		{"id is no UUID", with(func(ev *outbox.Event) { ev.ID = "{" + anID + "}" })},
		{"id is no UUID", with(func(ev *outbox.Event) { ev.ID = strings.ReplaceAll(anID, "-", "") })},
		{"id is no UUID", with(func(ev *outbox.Event) { ev.ID = "g" + anID[1:] })},
		{"id has 256 bytes", with(func(ev *outbox.Event) { ev.ID = long })},
		{"key has a NUL byte", with(func(ev *outbox.Event) { ev.Key = "a\x00b" })},
		{"aggregate is not UTF-8", with(func(ev *outbox.Event) { ev.Aggregate = "\xff" })},
		{"have 130059 bytes, the limit is 130048", with(func(ev *outbox.Event) { ev.ID, ev.Key = anID, strings.Repeat("k", 127<<10-37) })},
		{`header "x-retry-count" is reserved`, header("x-retry-count", "1")},
		{`header "x-retry-at" is reserved: consumers write it`, header("x-retry-at", "1")},
		{`header "attempts" is reserved: consumers write it`, header("attempts", "1")},
		{`header "traceparent" is reserved`, header("traceparent", "1")},
		{`header "id" is reserved`, header("id", "1")},
		{`header "x-delay" steers RabbitMQ`, header("x-delay", "1")},
		{"a header has no name", header("", "1")},
		{"the name of a header has 256 bytes", header(long, "1")},
		{"the name of a header is not UTF-8", header("\xff", "1")},
		{`header "h" has a NUL byte`, header("h", "\x00")},
		{"it is nil; for no body use outbox.Tombstone", payload(nil)},
		{"give outbox.Tombstone itself", payload(&outbox.Tombstone)},
		{"key is empty: a tombstone", outbox.Event{Aggregate: "order", Type: "removed", Payload: outbox.Tombstone}},
		{"it is empty", payload([]byte(nil))},
		{"it is empty", payload(json.RawMessage{})},
		{"it is the JSON null", payload((*int)(nil))},
		{"it is the JSON null", payload(json.RawMessage("null"))},
		{"it is the JSON null", payload(json.RawMessage(" null\n"))},
		{"it is a string: use json.RawMessage", payload(`{"a": 1}`)},
		{"it is not JSON", payload([]byte("{'a': 1}"))},
		{"it is not JSON", payload(json.RawMessage("{} {}"))},
		{"it is not UTF-8", payload([]byte("\"\xff\""))},
		{`it has \u0000`, payload([]string{"a\x00"})},
		{"unsupported type: chan int", payload(make(chan int))},
		{"the limit is 16777216 (Config.MaxPayload)", payload([]string{strings.Repeat("x", 16<<20)})},
	} {
		good := outbox.Event{Aggregate: "order", Key: "k", Type: "removed", Payload: outbox.Tombstone}
		err := outbox.Write(t.Context(), nil, good, tc.event)
		if !errors.Is(err, outbox.ErrInvalid) || !strings.Contains(err.Error(), "(2 of 2): ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("the error is %v, want one with %q", err, tc.want)
		}
	}
	for _, ev := range []outbox.Event{payload(json.RawMessage(`[1,2,3,4]`)), header("CC", long)} {
		if err := small.Write(t.Context(), nil, ev); !errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("the error is %v", err)
		}
	}
	var unsupported *json.UnsupportedTypeError
	if err := outbox.Write(t.Context(), nil, payload(func() {})); !errors.As(err, &unsupported) || unsupported.Type != reflect.TypeFor[func()]() {
		t.Errorf("the cause is hidden: %v", err)
	}
}
