// Frames that are recognised, checked and skipped: update, delete, truncate, logical messages. A publication of another
// making may send them; none of them is an event.

package decode

import (
	"errors"
	"fmt"
)

func (d *Decoder) update(f *frame, msg *Message) error {
	rel, err := d.changed(f)
	if err != nil {
		return err
	}
	if len(f.rest) > 0 && f.rest[0] != 'N' {
		f.oldTuple(d.values[:rel.columns])
	}
	f.expect('N')
	f.tuple(d.values[:rel.columns])
	msg.skip(rel.table != nil, "update")
	return f.end()
}

func (d *Decoder) delete(f *frame, msg *Message) error {
	rel, err := d.changed(f)
	if err != nil {
		return err
	}
	f.oldTuple(d.values[:rel.columns])
	msg.skip(rel.table != nil, "delete")
	return f.end()
}

// changed counts the frame and reads which relation it changes.
func (d *Decoder) changed(f *frame) (*relation, error) {
	if _, err := d.count(); err != nil {
		return nil, err
	}
	oid := f.uint32()
	if f.err != nil {
		return nil, f.err
	}
	return d.lookup(oid)
}

// oldTuple reads the key ('K') or the whole old row ('O').
func (f *frame) oldTuple(values []value) {
	if tag := f.byte(); f.err == nil && tag != 'K' && tag != 'O' {
		f.fail(fmt.Errorf("old tuple is announced by %q, not by 'K' or 'O'", tag))
	}
	f.tuple(values)
}

func (d *Decoder) truncate(f *frame, msg *Message) error {
	n := f.uint32()
	f.byte() // options: CASCADE, RESTART IDENTITY
	if uint64(len(f.rest)) < 4*uint64(n) {
		return errShort
	}
	ours := false
	for range n {
		rel, err := d.lookup(f.uint32())
		if err != nil {
			return err
		}
		ours = ours || rel.table != nil
	}
	if !d.open {
		return errors.New("it is outside a transaction")
	}
	msg.skip(ours, "truncate")
	return f.end()
}

// message reads a logical message (pg_logical_emit_message). Only a transactional one is of the open transaction, and
// counts; the server sends another kind at once, outside transactions.
func (d *Decoder) message(f *frame, msg *Message) error {
	flags := f.byte()
	f.uint64() // its LSN
	f.string() // prefix
	size := f.uint32()
	if f.err == nil && uint64(len(f.rest)) < uint64(size) {
		f.fail(errShort)
	}
	if f.err != nil {
		return f.err
	}
	f.rest = f.rest[size:]
	if err := f.end(); err != nil {
		return err
	}
	if flags&1 == 1 {
		if _, err := d.count(); err != nil {
			return err
		}
	}
	msg.Kind, msg.Reason = Skipped, "message"
	return nil
}

func (m *Message) skip(ours bool, reason string) {
	m.Kind, m.Reason = Skipped, reason
	if !ours {
		m.Reason = "foreign_table"
	}
}
