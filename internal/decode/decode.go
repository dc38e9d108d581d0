// Package decode turns the bytes of pgoutput, protocol version 1, into outbox events.
//
// It is pure: no I/O, no clock, no goroutine. The
// same frames give the same events, and a frame that is cut, malformed or out of place gives an
// error, never a panic and never a row. The formats are those of the PostgreSQL manual, "Logical
// Replication Message Formats".
package decode

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Config says which tables are the outbox and which of their columns an event is made of.
type Config struct {
	Tables   []Table
	Messages Messages
	// Columns are the columns that templates, headers and properties need in addition to the
	// mapping. Each must exist in every table; a message without a member of that name has NULL
	// there. Their values are Event.Columns, in this order.
	Columns []string
	// Shapes is whether rows have their table's shape (Event.Shape), which the reader of the stream
	// completes from the catalogue: see Message.Shape.
	Shapes bool
	// Dropped are prefixes of messages that were relayed before and are no longer configured: a
	// message with one of them is Foreign.
	Dropped []string
	// Copied: the rows were read from their tables, so each has its own transaction.
	Copied bool
	// LeftOut accepts frames of which large values are left out (LeftOutValue, LeftOutMessage).
	LeftOut bool
	Keys    *event.KeyHash // what Event.Hash is of a key; nil: without a secret
}

// Kind is the meaning of a frame for the reader.
type Kind uint8

// The kinds.
const (
	Begin   Kind = iota // a transaction opens
	Commit              // it ends: every row of it has been seen
	Row                 // an insert into one of our tables, or a message with our prefix
	Skipped             // a change that is not an event: Message.Reason
	// a description of a table that has a configured name and an unknown OID: Message.Table,
	// Message.OID. Its inserts are not ours
	Replaced
	// the first insert into a table that is not ours since it was described, or a message of
	// Config.Dropped: Message.OID, Message.Name
	Foreign
	// a description (relation, type, origin) that changes nothing for the reader
	Other
)

// Message is one decoded frame.
type Message struct {
	Kind   Kind
	Xid    uint32        // Begin, Commit
	Commit pglogrepl.LSN // Begin, Commit: the start of the commit record (Begin's final_lsn)
	// Commit: TransactionEndLSN, the position to confirm once all before it is settled
	End pglogrepl.LSN

	CommitTime time.Time // Begin: by the server's clock, microseconds

	// Event is the row. It belongs to the decoder and is valid until its next call; its bytes alias
	// the frame, or a buffer of the decoder.
	Event *event.Event

	// Stray: Row of a table with a column for the row's transaction, whose value is NULL or another
	// one's. It is an event like any other.
	Stray bool

	// Reason is why a change was Skipped: "update", "delete" or "truncate" of our table,
	// "foreign_table", "message" of another prefix, NonTransactional.
	Reason string

	Table *Table // Replaced, Stray: belongs to the decoder
	OID   uint32 // Replaced, Foreign (0: a message), and with a Shape
	// Foreign: of the table as the stream has it, schema.name, or the prefix of a message
	Name string
	// Shape is of a table of ours that was just described, when the configuration wants shapes;
	// else nil. The frame does not contain NOT NULL and defaults: the reader of the stream adds
	// them and calls Shaped before the table's next row.
	Shape *event.Shape
}

// NonTransactional is the reason for which a message with our prefix is Skipped: it is sent whether
// its transaction commits or not, so it is not an event.
const NonTransactional = "non_transactional"

// SkipReasons are all that Message.Reason may be: the series of cdc_relay_messages_skipped_total.
var SkipReasons = []string{"update", "delete", "truncate", "foreign_table", "message", NonTransactional}

// Decoder holds what the frames of one replication session refer back to: the relations described
// so far and the open transaction. It is not safe for concurrent use.
type Decoder struct {
	tables  []Table
	prefix  string // of the messages that are events; "": none are
	extra   []string
	shapes  bool     // Config.Shapes
	drop    []string // Config.Dropped
	copied  bool     // Config.Copied
	leftOut bool     // Config.LeftOut
	keys    *event.KeyHash
	// tableOf is the index in tables of every OID that is ours: a table that is renamed stays ours.
	tableOf   map[uint32]int
	relations map[uint32]*relation
	types     map[uint32]TypeName // of the relation that is described next

	open       bool
	xid        uint32
	commit     pglogrepl.LSN
	commitTime time.Time
	index      uint32 // of the transaction's next I, U, D or M frame
	// the text of the transaction's id in its rows, with its epoch, as a number, and how many bytes
	// of txText it has; 0: no row had it yet
	txText [20]byte
	txLen  int
	tx     uint64

	failed error // the session's first error

	// scratch of the current row
	values  []value  // of its tuple
	members []member // of its message
	event   event.Event
	columns [][]byte
	binary  []byte // a bytea payload
}

// New makes a decoder for the start of a session.
func New(cfg Config) *Decoder {
	d := &Decoder{
		tables:    slices.Clone(cfg.Tables),
		prefix:    cfg.Messages.Prefix,
		extra:     slices.Clone(cfg.Columns),
		tableOf:   make(map[uint32]int),
		relations: make(map[uint32]*relation),
		types:     make(map[uint32]TypeName),
		members:   cfg.Messages.members(cfg.Columns),
		columns:   make([][]byte, len(cfg.Columns)),
		shapes:    cfg.Shapes,
		drop:      slices.Clone(cfg.Dropped),
		copied:    cfg.Copied,
		leftOut:   cfg.LeftOut,
		keys:      cfg.Keys,
	}
	for i, t := range cfg.Tables {
		for _, oid := range t.Former {
			d.tableOf[oid] = i
		}
	}
	for i, t := range cfg.Tables { // what a table is now goes before what another one was
		if t.OID != 0 {
			d.tableOf[t.OID] = i
		}
	}
	return d
}

// Decode reads one frame (the data of an XLogData message) into msg, which it overwrites. wal is
// not changed.
//
// An *event.Stop means that a table of ours no longer fits its mapping; it is returned before any
// row of that shape. Any other error means that the stream cannot be trusted. Both end the session:
// every further call returns the same error, so nothing after a row that could not be decoded is
// passed on, least of all its Commit.
func (d *Decoder) Decode(wal []byte, msg *Message) error {
	*msg = Message{Kind: Other}
	if d.failed != nil {
		return d.failed
	}
	if len(wal) == 0 {
		d.failed = errors.New("decode frame: it is empty")
		return d.failed
	}
	err := d.decode(wal[0], &frame{rest: wal[1:], leftOut: d.leftOut}, msg)
	if err == nil {
		return nil
	}
	*msg = Message{Kind: Other}
	if stop, ok := errors.AsType[*event.Stop](err); ok {
		d.failed = stop
	} else {
		d.failed = fmt.Errorf("decode frame of type %q: %w", wal[0], err)
	}
	return d.failed
}

func (d *Decoder) decode(kind byte, f *frame, msg *Message) error {
	switch kind {
	case 'I':
		return d.insert(f, msg)
	case 'B':
		return d.begin(f, msg)
	case 'C':
		return d.end(f, msg)
	case 'R':
		return d.describe(f, msg)
	case 'U':
		return d.update(f, msg)
	case 'D':
		return d.delete(f, msg)
	case 'T':
		return d.truncate(f, msg)
	case 'M':
		return d.message(f, msg, false)
	case LeftOutMessage:
		if !d.leftOut {
			return errUnknown
		}
		return d.message(f, msg, true)
	case 'O':
		f.uint64() // commit LSN on the origin
		f.string() // its name
		return f.end()
	case 'Y':
		return d.describeType(f)
	default:
		return errUnknown
	}
}

var errUnknown = errors.New("it is not of protocol version 1")

func (d *Decoder) begin(f *frame, msg *Message) error {
	commit, at, xid := pglogrepl.LSN(f.uint64()), f.time(), f.uint32()
	if err := f.end(); err != nil {
		return err
	}
	if d.open {
		return fmt.Errorf("transaction %d begins inside transaction %d", xid, d.xid)
	}
	d.open, d.xid, d.commit, d.commitTime, d.index, d.txLen = true, xid, commit, at, 0, 0
	msg.Kind, msg.Xid, msg.Commit, msg.CommitTime = Begin, xid, commit, at
	return nil
}

func (d *Decoder) end(f *frame, msg *Message) error {
	f.byte() // flags, unused
	commit, end := pglogrepl.LSN(f.uint64()), pglogrepl.LSN(f.uint64())
	f.uint64() // commit time, as in its begin
	if err := f.end(); err != nil {
		return err
	}
	if !d.open {
		return fmt.Errorf("commit at %s without a begin", commit)
	}
	if commit != d.commit {
		return fmt.Errorf("commit at %s ends a transaction whose begin announced %s", commit, d.commit)
	}
	d.open = false
	d.release()
	msg.Kind, msg.Xid, msg.Commit, msg.End = Commit, d.xid, commit, end
	return nil
}

// release drops references to the last row's frame and to a large buffer at the end of a
// transaction, so that an idle relay keeps neither.
func (d *Decoder) release() {
	clear(d.values)
	for i := range d.members {
		d.members[i].forget()
	}
	clear(d.columns)
	d.event = event.Event{}
	d.binary = reuse(d.binary)
}

// count gives the frame its index in the transaction. Every I, U, D and transactional M frame is
// counted here, and nothing else, whatever table it belongs to: a position must not depend on the
// configuration.
func (d *Decoder) count() (uint32, error) {
	if !d.open {
		return 0, errors.New("it is outside a transaction")
	}
	if d.index == math.MaxUint32 {
		return 0, fmt.Errorf("transaction %d has more than %d changes: their positions cannot be distinguished", d.xid, uint32(math.MaxUint32))
	}
	d.index++
	return d.index - 1, nil
}

// SetIndex sets the index of the open transaction's next change, for rows that do not come from a
// stream: each is a transaction of its own here, and many of them share a commit.
func (d *Decoder) SetIndex(index uint32) { d.index = index }

// blank resets the decoder's event to one with only a position.
func (d *Decoder) blank(pos event.Position) *event.Event {
	d.event = event.Event{Position: pos, CommitTime: d.commitTime, Time: d.commitTime}
	return &d.event
}

// order sets the event's order and hash. An event that cannot be decoded is never sent, so no later
// event of its key has to wait for it.
func (d *Decoder) order(ev *event.Event) {
	ev.Ordered = len(ev.Key) > 0 && ev.Fault == nil
	if ev.Ordered {
		ev.Hash = d.keys.Of(ev.Aggregate, ev.Key)
	} else {
		ev.Hash = event.HashPosition(ev.Position)
	}
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

// update, delete and truncate check frames and skip them. A publication that the relay did not
// create may send them; none of them is an event.
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
