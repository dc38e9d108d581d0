package sink

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Names that belong to CloudEvents are dropped from the headers column and counted under a name of
// the configuration, whatever their case. Others pass.
func TestTakenHeaders(t *testing.T) {
	var dropped []string
	h, err := NewPlainHeaders(PlainConfig{
		Taken: []string{"ce_*", "content-type"}, HeaderDropped: func(name string) { dropped = append(dropped, name) },
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ev := &event.Event{Headers: []byte(`{"ce_id": "1", "CE_x": "2", "ce_": "3", "Content-Type": "4", "content-type2": "5", "ce": "6", "xce_": "7", "cdc_replay": "8"}`)}
	rec := new(Record)
	rec.Reset(ev)
	if fault := h.Append(ev, rec); fault != nil {
		t.Fatal(fault)
	}
	var names []string
	for _, header := range rec.Headers {
		names = append(names, header.Name)
	}
	if want := []string{"cdc_position", "content-type2", "ce", "xce_"}; !slices.Equal(names, want) {
		t.Errorf("the headers are %q, want %q", names, want)
	}
	if want := []string{"ce_*", "ce_*", "ce_*", "content-type", "cdc_replay"}; !slices.Equal(dropped, want) {
		t.Errorf("dropped are %q, want %q", dropped, want)
	}
}
