// Insert frames: a tuple becomes the event.

package decode

import (
	"encoding/hex"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func (d *Decoder) insert(f *frame, msg *Message) error {
	index, err := d.count()
	if err != nil {
		return err
	}
	oid := f.uint32()
	if f.err != nil {
		return f.err
	}
	rel, err := d.lookup(oid)
	if err != nil {
		return err
	}
	f.expect('N')
	f.tuple(d.values[:rel.columns])
	if err := f.end(); err != nil {
		return err
	}
	if rel.table == nil {
		msg.Kind, msg.Reason = Skipped, "foreign_table"
		if !rel.passed {
			rel.passed = true
			msg.Kind, msg.OID, msg.Name = Foreign, oid, rel.name
		}
		return nil
	}
	if rel.shape != nil && rel.encoded == nil {
		return fmt.Errorf("relation %d was described, but nobody has given its shape", oid)
	}
	d.row(rel, event.Position{Commit: d.commit, Index: index})
	msg.Kind, msg.Event = Row, &d.event
	return nil
}

// row fills the event from d.values. Whatever is wrong with the row itself becomes the event's
// Fault: a row is never dropped here.
func (d *Decoder) row(rel *relation, pos event.Position) {
	p, ev := &rel.places, d.blank(pos)
	if len(p.several) > 0 {
		p.choose(d.values)
	}
	ev.ID = d.text(rel, p.part[partID])
	if len(ev.ID) == 0 && ev.Fault == nil {
		ev.Fault = fmt.Errorf("the id (column %q of %s) is NULL or empty", rel.names[p.part[partID]], rel.table)
	}
	ev.Aggregate = d.text(rel, p.part[partAggregate])
	ev.Key = d.text(rel, p.part[partKey])
	ev.Type = d.text(rel, p.part[partType])
	ev.Traceparent = d.text(rel, p.part[partTraceparent])
	ev.Headers = d.text(rel, p.part[partHeaders])
	ev.PayloadKind = p.payloadKind
	ev.Payload = d.text(rel, p.part[partPayload])
	if p.payloadKind == event.Binary && ev.Payload != nil {
		ev.Payload = d.unhex(rel, p.part[partPayload], ev.Payload)
	}
	if place := p.part[partTimestamp]; place >= 0 && !rel.table.Mapping.Untimed {
		d.timestamp(rel, place)
	}
	for i, place := range p.extra {
		if place == theShape {
			d.columns[i] = rel.encoded
			continue
		}
		d.columns[i] = d.text(rel, place)
	}
	ev.Columns = d.columns

	if ev.Fault != nil {
		d.raw = appendRow(reuse(d.raw), rel.names, d.values)
		ev.Raw = d.raw
	}
	order(ev)
}

// choose takes for each part that has several columns the first that is not NULL in this row, or
// the first of all when every one is.
func (p *places) choose(row []value) {
	for i, c := range p.several {
		first := i == 0 || p.several[i-1].part != c.part
		if !first && (row[p.part[c.part]].kind != 'n' || row[c.place].kind == 'n') {
			continue
		}
		p.part[c.part] = c.place
		if c.part == partPayload {
			p.payloadKind = c.kind
		}
	}
}

// blank is the decoder's event, of which nothing is known but its place.
func (d *Decoder) blank(pos event.Position) *event.Event {
	d.event = event.Event{Position: pos, CommitTime: d.commitTime, Time: d.commitTime}
	return &d.event
}

// order says what the event waits for. One that cannot be decoded is never sent, so nothing has to
// wait for its turn in the order of its key.
func order(ev *event.Event) {
	ev.Ordered = len(ev.Key) > 0 && ev.Fault == nil
	if ev.Ordered {
		ev.Hash = event.HashKey(ev.Aggregate, ev.Key)
	} else {
		ev.Hash = event.HashPosition(ev.Position)
	}
}

// text is the column at place: nil for NULL and for a column that is not mapped.
func (d *Decoder) text(rel *relation, place int) []byte {
	if place < 0 {
		return nil
	}
	v := &d.values[place]
	switch v.kind {
	case 't', 'n':
		return v.data
	case 'u':
		d.fault("the value of column %q of %s was not sent (unchanged TOAST in an insert)", rel, place)
	default:
		d.fault("the value of column %q of %s was sent in binary", rel, place)
	}
	return nil
}

// unhex decodes a bytea payload into d.binary, not in place: the frame is the caller's, and can be
// decoded again.
func (d *Decoder) unhex(rel *relation, place int, text []byte) []byte {
	if len(text) >= 2 && text[0] == '\\' && text[1] == 'x' {
		size := hex.DecodedLen(len(text) - 2)
		if d.binary = reuse(d.binary); d.binary == nil || cap(d.binary) < size {
			d.binary = make([]byte, size)
		}
		if n, err := hex.Decode(d.binary[:size], text[2:]); err == nil {
			return d.binary[:n:n]
		}
	}
	d.fault("the payload (column %q of %s) is not bytea in hex; is bytea_output pinned to hex?", rel, place)
	return nil
}

// maxKept bounds the bytes of a buffer that are kept from one row to the next.
const maxKept = 1 << 20

// reuse is the buffer, empty, for the next row; nil for one that is too large to be kept.
func reuse(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// release lets go, at the end of a transaction, of the last row's frame and of large buffers: an
// idle relay holds neither.
func (d *Decoder) release() {
	clear(d.values)
	for i := range d.members {
		d.members[i].forget()
	}
	clear(d.columns)
	d.event = event.Event{}
	d.binary, d.texts, d.raw = reuse(d.binary), reuse(d.texts), reuse(d.raw)
}

func (d *Decoder) timestamp(rel *relation, place int) {
	text := d.text(rel, place)
	if text == nil {
		return
	}
	at, ok := parseTimestamp(text)
	if !ok {
		d.fault("the timestamp (column %q of %s) is not a date of the years 1 to 9999", rel, place)
		return
	}
	d.event.Time = at
}

// fault keeps the first thing that is wrong with the row. It names the column, never the value.
func (d *Decoder) fault(format string, rel *relation, place int) {
	if d.event.Fault == nil {
		d.event.Fault = fmt.Errorf(format, rel.names[place], rel.table)
	}
}
