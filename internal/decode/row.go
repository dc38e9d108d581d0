// Insert frames: a tuple becomes the event. Timestamps are read as a session with DateStyle ISO and
// TimeZone UTC prints them.

package decode

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"time"

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
	if rel.shape != nil && !rel.shaped {
		return fmt.Errorf("relation %d was described, but its shape is missing", oid)
	}
	d.row(rel, event.Position{Commit: d.commit, Index: index})
	msg.Kind, msg.Event = Row, &d.event
	d.event.Origin = event.Origin{Relation: oid}
	if rel.places.transaction >= 0 {
		d.event.Origin.Tx = d.writer(&d.values[rel.places.transaction])
		if msg.Stray = d.event.Origin.Tx == 0; msg.Stray {
			msg.Table = rel.table
		}
	}
	return nil
}

// writer is the transaction in a row's column; 0: there is none, or it is not the one that the
// stream says. All rows of a transaction have the same text as a rule, which is parsed once.
func (d *Decoder) writer(v *value) uint64 {
	if v.kind != 't' || len(v.data) == 0 || len(v.data) > len(d.txText) {
		return 0
	}
	if string(v.data) == string(d.txText[:d.txLen]) {
		return d.tx
	}
	var tx uint64
	for _, c := range v.data {
		if c < '0' || c > '9' || tx > (1<<63)/10 {
			return 0
		}
		tx = tx*10 + uint64(c-'0')
	}
	if uint32(tx) != d.xid && !d.copied {
		return 0
	}
	d.tx, d.txLen = tx, copy(d.txText[:], v.data)
	return tx
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
	ev.Payload = d.stored(rel, p.part[partPayload])
	if p.payloadKind == event.Binary && ev.Payload != nil {
		ev.Payload = d.unhex(rel, p.part[partPayload], ev.Payload)
	}
	if place := p.part[partTimestamp]; place >= 0 && !rel.table.Mapping.Untimed {
		d.timestamp(rel, place)
	}
	for i, place := range p.extra {
		d.columns[i] = d.text(rel, place)
	}
	ev.Columns, ev.Shape = d.columns, rel.shape

	switch {
	case ev.LeftOut != nil:
		// A replay reads the whole row, and finds what else is wrong with it.
		ev.Fault = nil
		for i := range d.values[:rel.columns] {
			ev.LeftOut.Bytes += d.values[i].size()
		}
	case ev.Fault != nil:
		ev.Raw = rawRow(rel.names, d.values)
	}
	d.order(ev)
}

// choose picks, for each part with several columns, the first that is not NULL in this row, or the
// first one if all are.
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

// text is the value of the column at place, without the blanks that fill a char(n): they are no
// part of the value, no comparison sees them, and two columns of different lengths would have two
// ids, keys or routing keys for one.
func (d *Decoder) text(rel *relation, place int) []byte {
	text := d.stored(rel, place)
	if rel.padded != nil && place >= 0 && rel.padded[place] {
		return bytes.TrimRight(text, " ")
	}
	return text
}

// stored is the column at place: nil for NULL and for a column that is not mapped.
func (d *Decoder) stored(rel *relation, place int) []byte {
	if place < 0 {
		return nil
	}
	v := &d.values[place]
	switch v.kind {
	case 't', 'n':
		return v.data
	case LeftOutValue:
		if d.event.LeftOut == nil {
			d.event.LeftOut = &event.LeftOut{Table: rel.table.String()}
		}
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

// parseTimestamp reads "2025-11-20 12:25:01.123456" with an optional offset "+00", "-03:30" or
// "+01:02:03"; without one it is UTC. It refuses what has no place in a time of the years 1 to
// 9999: infinity, BC, years of five digits. It is written by hand because package time takes some
// 250 ns longer, a tenth of what the relay spends on an event.
func parseTimestamp(b []byte) (time.Time, bool) {
	const least = len("2025-11-20 12:25:01")
	if len(b) < least || b[4] != '-' || b[7] != '-' || b[10] != ' ' || b[13] != ':' || b[16] != ':' {
		return time.Time{}, false
	}
	year, month, day := 100*pair(b[0], b[1])+pair(b[2], b[3]), pair(b[5], b[6]), pair(b[8], b[9])
	hour, minute, second := pair(b[11], b[12]), pair(b[14], b[15]), pair(b[17], b[18])
	if year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return time.Time{}, false
	}
	if hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	micros, rest, ok := parseFraction(b[least:])
	if !ok {
		return time.Time{}, false
	}
	offset, ok := parseOffset(rest)
	if !ok {
		return time.Time{}, false
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, micros*1000, time.UTC)
	if offset == 0 {
		return t, true
	}
	t = t.Add(-offset)
	return t, t.Year() >= 1 && t.Year() <= 9999
}

// pair is the number that two digits write; for anything else one that is beyond every range.
func pair(tens, ones byte) int {
	tens, ones = tens-'0', ones-'0'
	if tens > 9 || ones > 9 {
		return 10_000
	}
	return 10*int(tens) + int(ones)
}

func daysIn(year, month int) int {
	switch {
	case month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0):
		return 29
	case month == 2:
		return 28
	case month == 4 || month == 6 || month == 9 || month == 11:
		return 30
	default:
		return 31
	}
}

// parseFraction reads "" or ".1" to ".123456".
func parseFraction(b []byte) (micros int, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '.' {
		return 0, b, true
	}
	n := 1
	for ; n < len(b) && n <= 6 && b[n]-'0' <= 9; n++ {
		micros = micros*10 + int(b[n]-'0')
	}
	if n == 1 {
		return 0, nil, false
	}
	for i := n; i <= 6; i++ {
		micros *= 10
	}
	return micros, b[n:], true
}

// parseOffset reads "", "+hh", "+hh:mm" or "+hh:mm:ss".
func parseOffset(b []byte) (offset time.Duration, ok bool) {
	if len(b) == 0 || string(b) == "+00" {
		return 0, true
	}
	if len(b)%3 != 0 || len(b) > 9 || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	unit := time.Hour
	for i := 0; i < len(b); i += 3 {
		n := pair(b[i+1], b[i+2])
		if i > 0 && b[i] != ':' || n > 59 {
			return 0, false
		}
		offset += time.Duration(n) * unit
		unit /= 60
	}
	if b[0] == '-' {
		offset = -offset
	}
	return offset, true
}

// parseTime reads the time of a logical message. It refuses what is not of the years 1 to 9999.
func parseTime(layout string, text []byte) (time.Time, bool) {
	at, err := time.ParseInLocation(layout, string(text), time.UTC)
	at = at.UTC().Truncate(time.Microsecond)
	return at, err == nil && at.Year() >= 1 && at.Year() <= 9999
}
