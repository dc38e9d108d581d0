// What the plain encoders of brokers with headers have in common: the relay's own format.

package sink

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// The headers of the relay's own format with any broker.
const (
	HeaderPosition    = "cdc_position"
	HeaderReplay      = "cdc_replay" // on a dead letter that is published again
	headerTraceparent = "traceparent"
)

// ReservedHeaders are the names of headers that the relay writes itself or leaves to a consumer's
// retry, with any broker: not to be configured, dropped from the headers column.
var ReservedHeaders = []string{HeaderPosition, HeaderReplay, headerTraceparent, "x-retry-count"}

// PlainConfig is the configuration of the relay's own format.
type PlainConfig struct {
	// Columns are the extra columns in the order of Event.Columns; templates, headers and
	// properties name them.
	Columns []string
	// Headers are written when their column is not NULL.
	Headers []setting.NamedColumn
	// Traceparent is what a message carries as its traceparent, of its own in buf[:0]; nil:
	// nothing. Without this function it is the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
	// HeaderDropped is called for a key of the headers column that has one of the relay's own
	// names. It may be nil.
	HeaderDropped func(name string)
}

// PlainHeaders writes the headers of the relay's own format.
type PlainHeaders struct {
	cfg      PlainConfig
	reserved []string
	columns  []int // of Headers: places in Event.Columns
}

// NewPlainHeaders resolves the columns of headers. own are the names of those that the relay writes
// for this broker only.
func NewPlainHeaders(cfg PlainConfig, own []string) (PlainHeaders, error) {
	h := PlainHeaders{cfg: cfg, reserved: slices.Concat(own, ReservedHeaders)}
	for _, named := range cfg.Headers {
		i := slices.Index(cfg.Columns, named.Column)
		if i < 0 {
			return h, fmt.Errorf("header %q: column %q is not read", named.Name, named.Column)
		}
		h.columns = append(h.columns, i)
	}
	return h, nil
}

// Append writes the headers that do not depend on the broker, in this order: the relay's own, the
// configured ones, those of the headers column. That is a JSON object, whose keys are dropped and
// counted when they are the relay's own; a configured header that has a value goes before a key of
// its name. A key that is there twice (type json keeps it) is written twice, and the last one is
// what JSON means. A JSON null is no headers.
func (h *PlainHeaders) Append(ev *event.Event, rec *Record) *Fault {
	start := len(rec.Buf)
	rec.Buf = ev.Position.Append(rec.Buf)
	rec.AddText(HeaderPosition, rec.Since(start))
	rec.AddText(headerTraceparent, rec.Traceparent(ev, h.cfg.Traceparent))
	if ev.Replay {
		rec.AddText(HeaderReplay, replayed)
	}
	for i, column := range h.columns {
		rec.AddText(h.cfg.Headers[i].Name, ev.Columns[column])
	}
	if len(ev.Headers) == 0 {
		return nil
	}
	members, ok := event.MembersOf(ev.Headers)
	if !ok {
		return PermanentFault(Invalid, "the headers column is not a JSON object")
	}
	for name, raw, more := members.Next(); more; name, raw, more = members.Next() {
		name := unsafe.String(unsafe.SliceData(name), len(name)) // aliases the event, as raw does
		if !h.taken(name, ev) && !rec.AddMember(name, raw) {
			return OverBudget(rec.Budget.Err())
		}
	}
	return nil
}

var replayed = []byte("true")

// taken reports whether the record has a header of the relay's own or a configured one of this
// name.
func (h *PlainHeaders) taken(name string, ev *event.Event) bool {
	if i := slices.Index(h.reserved, name); i >= 0 {
		if h.cfg.HeaderDropped != nil {
			h.cfg.HeaderDropped(h.reserved[i]) // not name, which aliases the event
		}
		return true
	}
	for i, column := range h.columns {
		if h.cfg.Headers[i].Name == name && ev.Columns[column] != nil {
			return true
		}
	}
	return false
}
