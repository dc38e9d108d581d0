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
	tables          []Table        // Config.Tables; OIDs are filled in
	messagePrefix   string         // of the messages that are events; "": none are
	extraColumns    []string       // Config.Columns
	shapes          bool           // Config.Shapes
	droppedPrefixes []string       // Config.Dropped
	copied          bool           // Config.Copied
	leftOut         bool           // Config.LeftOut
	keys            *event.KeyHash // Config.Keys
	// tableOf is the index in tables of every OID that is ours: a table that is renamed stays ours.
	tableOf   map[uint32]int
	relations map[uint32]*relation
	types     map[uint32]TypeName // of the relation that is described next

	open       bool // a transaction is open: the next four fields are its own
	xid        uint32
	commit     pglogrepl.LSN
	commitTime time.Time
	index      uint32 // of the transaction's next I, U, D or M frame
	// The transaction's id with its epoch, as its rows have it: txText[:txLen] is the text, tx the
	// number. txLen is 0 until a row had it.
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
		tables:          slices.Clone(cfg.Tables),
		messagePrefix:   cfg.Messages.Prefix,
		extraColumns:    slices.Clone(cfg.Columns),
		tableOf:         make(map[uint32]int),
		relations:       make(map[uint32]*relation),
		types:           make(map[uint32]TypeName),
		members:         cfg.Messages.members(cfg.Columns),
		columns:         make([][]byte, len(cfg.Columns)),
		shapes:          cfg.Shapes,
		droppedPrefixes: slices.Clone(cfg.Dropped),
		copied:          cfg.Copied,
		leftOut:         cfg.LeftOut,
		keys:            cfg.Keys,
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
	err := d.decodeFrame(wal[0], &frame{rest: wal[1:], leftOut: d.leftOut}, msg)
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

func (d *Decoder) decodeFrame(kind byte, f *frame, msg *Message) error {
	switch kind {
	case 'I':
		return d.decodeInsert(f, msg)
	case 'B':
		return d.decodeBegin(f, msg)
	case 'C':
		return d.decodeCommit(f, msg)
	case 'R':
		return d.decodeRelation(f, msg)
	case 'U':
		return d.skipUpdate(f, msg)
	case 'D':
		return d.skipDelete(f, msg)
	case 'T':
		return d.skipTruncate(f, msg)
	case 'M':
		return d.decodeMessage(f, msg, false)
	case LeftOutMessage:
		if !d.leftOut {
			return errUnknown
		}
		return d.decodeMessage(f, msg, true)
	case 'O':
		f.uint64() // commit LSN on the origin
		f.string() // its name
		return f.checkEnd()
	case 'Y':
		return d.decodeType(f)
	default:
		return errUnknown
	}
}

var errUnknown = errors.New("it is not of protocol version 1")

// decodeBegin reads a Begin frame.
func (d *Decoder) decodeBegin(f *frame, msg *Message) error {
	commit, at, xid := pglogrepl.LSN(f.uint64()), f.time(), f.uint32()
	if err := f.checkEnd(); err != nil {
		return err
	}
	if d.open {
		return fmt.Errorf("transaction %d begins inside transaction %d", xid, d.xid)
	}
	d.open, d.xid, d.commit, d.commitTime, d.index, d.txLen = true, xid, commit, at, 0, 0
	msg.Kind, msg.Xid, msg.Commit, msg.CommitTime = Begin, xid, commit, at
	return nil
}

// decodeCommit reads a Commit frame.
func (d *Decoder) decodeCommit(f *frame, msg *Message) error {
	f.byte() // flags, unused
	commit, end := pglogrepl.LSN(f.uint64()), pglogrepl.LSN(f.uint64())
	f.uint64() // commit time, as in its begin
	if err := f.checkEnd(); err != nil {
		return err
	}
	if !d.open {
		return fmt.Errorf("commit at %s without a begin", commit)
	}
	if commit != d.commit {
		return fmt.Errorf("commit at %s ends a transaction whose begin announced %s", commit, d.commit)
	}
	d.open = false
	d.releaseRow()
	msg.Kind, msg.Xid, msg.Commit, msg.End = Commit, d.xid, commit, end
	return nil
}

// releaseRow drops references to the last row's frame and to a large buffer at the end of a
// transaction, so that an idle relay keeps neither.
func (d *Decoder) releaseRow() {
	clear(d.values)
	for i := range d.members {
		d.members[i].dropValues()
	}
	clear(d.columns)
	d.event = event.Event{}
	d.binary = reuseBuffer(d.binary)
}

// countChange gives the frame its index in the transaction. Every I, U, D and transactional M frame
// is counted here, and nothing else, whatever table it belongs to: a position must not depend on
// the configuration.
func (d *Decoder) countChange() (uint32, error) {
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

// resetEvent makes the decoder's event one with only a position and the times of its commit.
func (d *Decoder) resetEvent(pos event.Position) *event.Event {
	d.event = event.Event{Position: pos, CommitTime: d.commitTime, Time: d.commitTime}
	return &d.event
}

// setOrder sets the event's Ordered and Hash. An event that cannot be decoded is never sent, so no
// later event of its key has to wait for it.
func (d *Decoder) setOrder(ev *event.Event) {
	ev.Ordered = len(ev.Key) > 0 && ev.Fault == nil
	if ev.Ordered {
		ev.Hash = d.keys.Of(ev.Aggregate, ev.Key)
	} else {
		ev.Hash = event.HashPosition(ev.Position)
	}
}

// maxKept bounds the bytes of a buffer that are kept from one row to the next.
const maxKept = 1 << 20

// reuseBuffer is the buffer, empty, for the next row; nil for one that is too large to be kept.
func reuseBuffer(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// skipUpdate reads an Update frame, and skips it, as delete and truncate do theirs. A publication
// that the relay did not create may send them; none of them is an event.
func (d *Decoder) skipUpdate(f *frame, msg *Message) error {
	rel, err := d.changedRelation(f)
	if err != nil {
		return err
	}
	if len(f.rest) > 0 && f.rest[0] != 'N' {
		f.oldTuple(d.values[:rel.columns])
	}
	f.expectTag('N')
	f.tuple(d.values[:rel.columns])
	msg.skipChange(rel.table != nil, "update")
	return f.checkEnd()
}

func (d *Decoder) skipDelete(f *frame, msg *Message) error {
	rel, err := d.changedRelation(f)
	if err != nil {
		return err
	}
	f.oldTuple(d.values[:rel.columns])
	msg.skipChange(rel.table != nil, "delete")
	return f.checkEnd()
}

// changedRelation counts the frame and reads which relation it changes.
func (d *Decoder) changedRelation(f *frame) (*relation, error) {
	if _, err := d.countChange(); err != nil {
		return nil, err
	}
	oid := f.uint32()
	if f.err != nil {
		return nil, f.err
	}
	return d.relationOf(oid)
}

// oldTuple reads the key ('K') or the whole old row ('O').
func (f *frame) oldTuple(values []value) {
	if tag := f.byte(); f.err == nil && tag != 'K' && tag != 'O' {
		f.setError(fmt.Errorf("old tuple is announced by %q, not by 'K' or 'O'", tag))
	}
	f.tuple(values)
}

func (d *Decoder) skipTruncate(f *frame, msg *Message) error {
	n := f.uint32()
	f.byte() // options: CASCADE, RESTART IDENTITY
	if uint64(len(f.rest)) < 4*uint64(n) {
		return errShort
	}
	ours := false
	for range n {
		rel, err := d.relationOf(f.uint32())
		if err != nil {
			return err
		}
		ours = ours || rel.table != nil
	}
	if !d.open {
		return errors.New("it is outside a transaction")
	}
	msg.skipChange(ours, "truncate")
	return f.checkEnd()
}

// skipChange makes the message one of a change that is no event. Of a table that is not ours the
// reason is foreign_table.
func (m *Message) skipChange(ours bool, reason string) {
	m.Kind, m.Reason = Skipped, reason
	if !ours {
		m.Reason = "foreign_table"
	}
}
