package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// compareContent says how the event of a message differs from what encoding/json reads of it.
func compareContent(d *Decoder, ev *event.Event, content []byte) error {
	if err := compareOrder(ev); err != nil {
		return err
	}
	if (ev.Fault == nil) != (ev.Raw == nil) || ev.Fault != nil && utf8.Valid(content) && !bytes.Equal(ev.Raw, content) {
		return fmt.Errorf("raw %q, fault %w", ev.Raw, ev.Fault)
	}
	if !utf8.Valid(content) {
		var raw map[string]string
		if err := json.Unmarshal(ev.Raw, &raw); err != nil || raw["message:hex"] != fmt.Sprintf("%x", content) || ev.Fault == nil {
			return fmt.Errorf("raw %q, fault %w", ev.Raw, ev.Fault)
		}
		return nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(content, &all); err != nil && ev.Fault == nil {
		return fmt.Errorf("no fault, but encoding/json says: %w", err)
	} else if err != nil {
		all = nil // of a half read object
	}
	parts := [...][]byte{
		partID: ev.ID, partAggregate: ev.Aggregate, partKey: ev.Key, partType: ev.Type, partTraceparent: ev.Traceparent,
		partPayload: ev.Payload, partHeaders: ev.Headers,
	}
	faulty := len(ev.ID) == 0
	for i, m := range d.members {
		if i == partTimestamp {
			continue
		}
		var value json.RawMessage
		there := false
		for _, name := range m.names {
			v, has := all[name]
			if has && (!there || string(value) == "null") {
				value, there = v, true
			}
		}
		faulty = faulty || !there && !m.optional && len(m.names) > 0
		if string(value) == "null" {
			value = nil
		}
		var got []byte
		if i < partExtra {
			got = parts[i]
		} else {
			got = ev.Columns[i-partExtra]
		}
		want := []byte(value)
		if verbatim := i == partPayload || i == partHeaders; !verbatim && value != nil {
			word := value[0] == '"' || value[0] == '-' || value[0] >= '0' && value[0] <= '9'
			if value[0] == '"' {
				var s string
				if err := json.Unmarshal(value, &s); err != nil {
					return err
				}
				want = []byte(s)
				// which encoding/json puts for half a pair
				if got == nil && strings.Contains(s, "\ufffd") {
					word, want = false, nil
				}
			}
			if !word && i < partExtra {
				want, faulty = nil, true
			}
			faulty = faulty || !word && value[0] == '"'
		}
		if (got == nil) != (want == nil) || !bytes.Equal(got, want) {
			return fmt.Errorf("part %d %q is %q, want %q", i, m.names, got, want)
		}
	}
	if faulty && ev.Fault == nil {
		return fmt.Errorf("no fault for %q", content)
	}
	if !faulty && ev.Fault != nil && !strings.Contains(ev.Fault.Error(), "timestamp") && !strings.Contains(ev.Fault.Error(), `"created_at"`) {
		return fmt.Errorf("fault %w for %q", ev.Fault, content)
	}
	return nil
}

// A character that encoding/json writes for half a surrogate pair may stand in a text by itself.
func TestUnquoteReplacementCharacter(t *testing.T) {
	for quoted, want := range map[string]string{
		"\"M\ufffdller \\\"A\\\"\"": "M\ufffdller \"A\"", "\"M\ufffdller\"": "M\ufffdller", `"\ud83d\ude00"`: "\U0001F600",
		"\"\ufffd\\ud800\"": "", `"\ud800"`: "", `"\ude00\ud83d"`: "",
	} {
		text, ok := unquoteString([]byte(quoted))
		if ok != (want != "") || ok && string(text) != want {
			t.Errorf("%s gives %q, %v", quoted, text, ok)
		}
	}
}

// FuzzMessage: whatever a message holds, it is an event, whose parts are what encoding/json reads.
func FuzzMessage(f *testing.F) {
	for _, content := range []string{
		sampleMessage, ``, `{}`, `null`, `[]`, `"x"`, `{"id": 1}`, `{"id": null, "payload": null}`, `{"id": "a", "id": "b", "payload": 1}`,
		`{"id":"\ud83d\ude00","payload":[],"aggregatetype":"\ud800","aggregateid":"","type":"\ud800\u0041"}`, `{"id":{},"payload":true}`,
		`{"id":"a","aggregatetype":null,"aggregateid":-1.5e3,"type":false,"payload":"\u0000","created_at":"2025-11-20T12:25:01.5Z"}`,
		`{"id":"\"\\\/\b\f\n\r\t\u00e4","aggregatetype":"a","aggregateid":"k","type":"t","payload":"x","traceparent":"00","headers":null,"created_at":1}`,
		"{\"id\":\"\xff\"}", `{"\u0069d":"a"}`, `{"id":"\uDBFF\uDFFF\ufffd"}`,
		`{"event_id":null,"id":1,"customer":"k","aggregateid":null,"body":1,"payload":2,"body":null,"type":null}`, `{"event_id":2,"body":null,"payload":null}`,
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		before := bytes.Clone(content)
		for _, mapping := range []Mapping{outboxTable().Mapping, movingMapping()} {
			d := New(Config{Messages: Messages{Prefix: "p", Mapping: mapping}, Columns: []string{"type"}})
			var msg Message
			for _, wal := range [][]byte{beginFrame(0x2000, 8), messageFrame(true, "p", string(content))} {
				if err := d.Decode(wal, &msg); err != nil {
					t.Fatal(err)
				}
			}
			if msg.Kind != Row {
				t.Fatal(msg)
			}
			if err := compareContent(d, msg.Event, content); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(before, content) {
				t.Fatal("the message was changed")
			}
		}
	})
}

// TestMessageTimes: the time of a message is in PostgreSQL's form or that of RFC 3339, with
// whatever offset.
func TestMessageTimes(t *testing.T) {
	d := readyDecoder(t, true)
	for text, want := range map[string]string{
		`"2025-11-20 12:25:01.123456+00"`: "2025-11-20T12:25:01.123456Z", `"2025-11-20T12:25:01.123456+02:00"`: "2025-11-20T10:25:01.123456Z",
		`"2025-11-20T12:25:01Z"`: "2025-11-20T12:25:01Z", `"2025-11-20T12:25:01.123456789Z"`: "2025-11-20T12:25:01.123456Z",
		`"2025-11-20T12:25:01.123456"`: "", `"0000-01-01T00:00:00Z"`: "", `"0001-01-01T00:00:00+01:00"`: "", `1732105501`: "", `"tomorrow"`: "", `""`: "", `{}`: "", `true`: "",
	} {
		var msg Message
		content := `{"id": 1, "aggregatetype": null, "aggregateid": null, "type": null, "payload": {}, "created_at": ` + text + `}`
		if err := d.Decode(messageFrame(true, "p", content), &msg); err != nil {
			t.Fatal(err)
		}
		got := ""
		if msg.Event.Fault == nil {
			got = msg.Event.Time.Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q; fault %v", text, got, want, msg.Event.Fault)
		}
		if msg.Event.Fault != nil && msg.Event.Time != msg.Event.CommitTime {
			t.Errorf("%s: a time of its own, %v", text, msg.Event.Time)
		}
	}
}

// TestMessageAliasesFrame: what has no escapes is not copied, and the payload never.
func TestMessageAliasesFrame(t *testing.T) {
	d := readyDecoder(t, true)
	wal := messageFrame(true, "p", `{"id": "\u0061", "aggregatetype": "order", "aggregateid": 7, "type": null, "payload": {"a": "\u0062"}}`)
	var msg Message
	if err := d.Decode(wal, &msg); err != nil || msg.Event.Fault != nil {
		t.Fatal(err, msg.Event.Fault)
	}
	ev := msg.Event
	copy(wal[bytes.Index(wal, []byte("order")):], "ORDER")
	copy(wal[bytes.Index(wal, []byte(`{"a"`)):], `{"A"`)
	if string(ev.ID) != "a" || string(ev.Aggregate) != "ORDER" || string(ev.Key) != "7" || string(ev.Payload) != `{"A": "\u0062"}` {
		t.Errorf("got %q %q %q %q", ev.ID, ev.Aggregate, ev.Key, ev.Payload)
	}
	for _, v := range [][]byte{ev.ID, ev.Aggregate, ev.Key, ev.Payload} {
		if cap(v) != len(v) {
			t.Errorf("%q has capacity %d: it can grow into its neighbour", v, cap(v))
		}
	}
	if ev.Type != nil || ev.Headers != nil || ev.Traceparent != nil {
		t.Errorf("what is null or missing is %q, %q, %q", ev.Type, ev.Headers, ev.Traceparent)
	}
}
