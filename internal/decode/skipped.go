// Frames that are checked and skipped: update, delete, truncate. A publication that the relay did
// not create may send them; none of them is an event.

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

func (m *Message) skip(ours bool, reason string) {
	m.Kind, m.Reason = Skipped, reason
	if !ours {
		m.Reason = "foreign_table"
	}
}
