// Insert frames: a tuple becomes the event.

package decode

import (
	"encoding/hex"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
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
		return nil
	}
	d.row(rel, outbox.Position{Commit: d.commit, Index: index})
	msg.Kind, msg.Event = Row, &d.event
	return nil
}

// row fills the event from d.values. Whatever is wrong with the row itself becomes the event's Fault: a row is never
// dropped here.
func (d *Decoder) row(rel *relation, pos outbox.Position) {
	p, ev := &rel.places, &d.event
	ev.Position = pos
	ev.CommitTime, ev.Time = d.commitTime, d.commitTime
	ev.Fault = nil

	ev.ID = d.text(rel, p.id)
	if len(ev.ID) == 0 && ev.Fault == nil {
		ev.Fault = fmt.Errorf("the id (column %q of %s) is NULL or empty", rel.names[p.id], rel.table)
	}
	ev.Aggregate = d.text(rel, p.aggregate)
	ev.Key = d.text(rel, p.key)
	ev.Type = d.text(rel, p.typ)
	ev.Traceparent = d.text(rel, p.traceparent)
	ev.Headers = d.text(rel, p.headers)
	ev.PayloadKind = p.payloadKind
	ev.Payload = d.text(rel, p.payload)
	if p.payloadKind == outbox.Binary && ev.Payload != nil {
		ev.Payload = d.unhex(rel, ev.Payload)
	}
	if p.timestamp >= 0 {
		d.timestamp(rel)
	}
	for i, place := range p.extra {
		d.columns[i] = d.text(rel, place)
	}
	ev.Columns = d.columns

	// An undecodable event is never sent, so nothing has to wait for its turn in the order of its key.
	ev.Ordered = len(ev.Key) > 0 && ev.Fault == nil
	if ev.Ordered {
		ev.Hash = hashKey(ev.Aggregate, ev.Key)
	} else {
		ev.Hash = hashPosition(pos)
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

// unhex decodes a bytea payload into d.raw, not in place: the frame is the caller's, and can be decoded again.
func (d *Decoder) unhex(rel *relation, text []byte) []byte {
	if len(text) >= 2 && text[0] == '\\' && text[1] == 'x' {
		size := hex.DecodedLen(len(text) - 2)
		if d.raw == nil || cap(d.raw) < size || cap(d.raw) > maxKeptRaw {
			d.raw = make([]byte, size)
		}
		if n, err := hex.Decode(d.raw[:size], text[2:]); err == nil {
			return d.raw[:n:n]
		}
	}
	d.fault("the payload (column %q of %s) is not bytea in hex; is bytea_output pinned to hex?", rel, rel.places.payload)
	return nil
}

// maxKeptRaw bounds the bytes of the bytea buffer that are kept from one row to the next.
const maxKeptRaw = 1 << 20

// release lets go, at the end of a transaction, of the last row's frame and of a large buffer: an idle relay holds neither.
func (d *Decoder) release() {
	clear(d.values)
	clear(d.columns)
	d.event = outbox.Event{}
	if cap(d.raw) > maxKeptRaw {
		d.raw = nil
	}
}

func (d *Decoder) timestamp(rel *relation) {
	place := rel.places.timestamp
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
