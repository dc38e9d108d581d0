package replication

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// otherTool is a program that reads a slot of pgoutput with a publication of its own, "publishes"
// what it reads, and confirms it only now and then, as Debezium does. Started again, it goes on
// where the server says.
type otherTool struct {
	b           *bench
	slot        string
	publication string
	table       uint32 // the outbox, as pgoutput has described it

	mu        sync.Mutex
	published []string // ids, in order, over all its runs
	commits   []*pglogrepl.CommitMessage
	open      []string      // of the open transaction
	end       pglogrepl.LSN // of the newest transaction that is published
	known     int           // of published the first ones are confirmed
	confirmed pglogrepl.LSN

	conn *pgconn.PgConn
	asks chan ask // to confirm
	quit chan struct{}
	done chan struct{}
}

// ask is to confirm up to a position, 0 for everything that is published; done is closed when the
// server was sent.
type ask struct {
	to   pglogrepl.LSN
	done chan struct{}
}

// newTool makes publication and slot.
func (b *bench) newTool() *otherTool {
	b.t.Helper()
	b.exec(`CREATE PUBLICATION theirs FOR TABLE outbox`)
	return b.newToolOf("theirs")
}

// dbzPublication is the name that Debezium gives its publication.
const dbzPublication = "dbz_publication"

// newToolOf makes the slot. The publication must be there.
func (b *bench) newToolOf(publication string) *otherTool {
	b.t.Helper()
	o := &otherTool{b: b, slot: b.cfg.Slot + "_other", publication: publication}
	b.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, o.slot)
	return o
}

const toolName = "another program"

// start begins to read where the slot stands.
func (o *otherTool) start() {
	t := o.b.t
	t.Helper()
	o.confirmed = o.at()
	await.Until(t, "the slot of the other program to be free", func() bool {
		var err error
		if o.conn, err = o.b.replicate(o.slot, toolName, "proto_version '1'", "publication_names '"+o.publication+"'"); err != nil {
			source.CloseStream(o.conn)
		}
		return err == nil
	})
	o.asks, o.quit, o.done = make(chan ask), make(chan struct{}), make(chan struct{})
	go o.read()
	t.Cleanup(o.kill)
}

func (o *otherTool) read() {
	defer close(o.done)
	defer source.CloseStream(o.conn)
	for {
		select {
		case <-o.quit:
			return
		case a := <-o.asks:
			if o.confirmed = a.to; a.to == 0 {
				o.confirmed, o.known = o.end, len(o.published)
			}
			o.report()
			close(a.done)
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		msg, err := o.conn.ReceiveMessage(ctx)
		cancel()
		if err != nil && !pgconn.Timeout(err) {
			return
		}
		if data, ok := msg.(*pgproto3.CopyData); ok {
			o.message(data.Data)
		}
	}
}

// report tells the server what is confirmed; an error ends the reading, too.
func (o *otherTool) report() {
	_ = pglogrepl.SendStandbyStatusUpdate(context.Background(), o.conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: max(o.confirmed, 1)})
}

func (o *otherTool) message(data []byte) {
	if data[0] != pglogrepl.XLogDataByteID {
		o.report()
		return
	}
	x, err := pglogrepl.ParseXLogData(data[1:])
	if err != nil {
		return
	}
	m, err := pglogrepl.Parse(x.WALData)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch m := m.(type) {
	case *pglogrepl.RelationMessage:
		if m.RelationName == "outbox" {
			o.table = m.RelationID
		}
	case *pglogrepl.InsertMessage:
		if m.RelationID == o.table {
			o.open = append(o.open, string(m.Tuple.Columns[0].Data))
		}
	case *pglogrepl.CommitMessage:
		o.published = append(o.published, o.open...)
		o.commits = append(o.commits, m)
		o.open, o.end = nil, m.TransactionEndLSN
	}
}

// kill ends it with nothing more confirmed.
func (o *otherTool) kill() {
	if o.quit == nil {
		return
	}
	close(o.quit)
	<-o.done
	o.quit, o.open = nil, nil
}

// confirm confirms what is published, and returns when the slot has it.
func (o *otherTool) confirm() {
	o.b.t.Helper()
	o.confirmTo(0)
}

func (o *otherTool) confirmTo(lsn pglogrepl.LSN) {
	t := o.b.t
	t.Helper()
	a := ask{lsn, make(chan struct{})}
	select {
	case o.asks <- a:
		<-a.done
	case <-o.done:
		t.Fatal("the other program has ended")
	}
	await.Until(t, "the other program's confirmation", func() bool { return o.at() >= o.confirmed })
}

// at is its slot's confirmed_flush_lsn.
func (o *otherTool) at() pglogrepl.LSN {
	o.b.t.Helper()
	at, err := pglogrepl.ParseLSN(o.b.text(`SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, o.slot))
	await.Must(o.b.t, err)
	return at
}

// seen are the ids that it has published, and those of them that it has not confirmed. It must not
// run.
func (o *otherTool) seen() (all, unconfirmed []string) { return o.published, o.published[o.known:] }

func (o *otherTool) waitSeen(id string) {
	o.b.t.Helper()
	await.Until(o.b.t, "the other program to publish "+id, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return slices.Contains(o.published, id)
	})
}

func (o *otherTool) exists() bool {
	return o.b.text(`SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, o.slot) == "1"
}
