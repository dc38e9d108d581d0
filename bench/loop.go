// The baseline of latency: one goroutine that reads the slot, publishes, awaits the broker's word,
// and reports.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// publish is the loop's side of the broker.
type publish struct {
	send  func(ctx context.Context, r *loopRow) error // returns when the broker has it
	close func()
}

// loopRow is a row as the loop publishes it.
type loopRow struct {
	columns    map[string]string
	commitTime time.Time
	position   string // as the relay writes it
}

// loop is the bare loop. It has a temporary slot, which goes with its connection.
type loop struct {
	conn      *pgconn.PgConn
	publish   publish
	relations map[uint32]*pglogrepl.RelationMessage
	commit    *pglogrepl.BeginMessage
	index     int
	flushed   pglogrepl.LSN

	cancel context.CancelFunc
	done   chan error
}

// startLoop connects and starts it; it streams once startLoop has returned.
func startLoop(ctx context.Context, db string, dial func() (publish, error)) (*loop, error) {
	conn, err := pgconn.Connect(ctx, db+"&replication=database")
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	l := &loop{conn: conn, relations: map[uint32]*pglogrepl.RelationMessage{}, done: make(chan error, 1)}
	if l.publish, err = dial(); err == nil {
		err = l.startReplication(ctx)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	ctx, l.cancel = context.WithCancel(ctx)
	go func() { l.done <- l.run(ctx) }()
	return l, nil
}

func (l *loop) startReplication(ctx context.Context) error {
	slot := pglogrepl.CreateReplicationSlotOptions{Temporary: true}
	if _, err := pglogrepl.CreateReplicationSlot(ctx, l.conn, "bench_loop", "pgoutput", slot); err != nil {
		return fmt.Errorf("create slot: %w", err)
	}
	options := pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'", `publication_names '"bench"'`}}
	if err := pglogrepl.StartReplication(ctx, l.conn, "bench_loop", 0, options); err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	return nil
}

func (l *loop) close() {
	if l.publish.close != nil {
		l.publish.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l.conn.Close(ctx)
}

// stop ends the loop and returns why it ended before, if it did.
func (l *loop) stop() error {
	l.cancel()
	err := <-l.done
	l.close()
	return err
}

func (l *loop) run(ctx context.Context) error {
	for {
		msg, err := l.conn.ReceiveMessage(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		data, ok := msg.(*pgproto3.CopyData)
		if !ok {
			return fmt.Errorf("receive: unexpected %T", msg)
		}
		switch data.Data[0] {
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			err = l.keepalive(ctx, data.Data[1:])
		case pglogrepl.XLogDataByteID:
			err = l.change(ctx, data.Data[1:])
		}
		// stopped when all had arrived; the answer to the last row may still have been on its way
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *loop) keepalive(ctx context.Context, data []byte) error {
	k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data)
	if err != nil {
		return fmt.Errorf("parse keepalive: %w", err)
	}
	if k.ReplyRequested && l.flushed > 0 {
		return l.report(ctx)
	}
	return nil
}

func (l *loop) report(ctx context.Context) error {
	status := pglogrepl.StandbyStatusUpdate{WALWritePosition: l.flushed, WALFlushPosition: l.flushed, WALApplyPosition: l.flushed}
	if err := pglogrepl.SendStandbyStatusUpdate(ctx, l.conn, status); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func (l *loop) change(ctx context.Context, data []byte) error {
	wal, err := pglogrepl.ParseXLogData(data)
	if err != nil {
		return fmt.Errorf("parse WAL data: %w", err)
	}
	msg, err := pglogrepl.Parse(wal.WALData)
	if err != nil {
		return fmt.Errorf("parse change: %w", err)
	}
	switch m := msg.(type) {
	case *pglogrepl.RelationMessage:
		l.relations[m.RelationID] = m
	case *pglogrepl.BeginMessage:
		l.commit, l.index = m, 0
	case *pglogrepl.InsertMessage:
		return l.insert(ctx, m)
	case *pglogrepl.CommitMessage:
		l.flushed = m.TransactionEndLSN
		return l.report(ctx)
	}
	return nil
}

// insert publishes a row.
func (l *loop) insert(ctx context.Context, m *pglogrepl.InsertMessage) error {
	relation := l.relations[m.RelationID]
	if relation == nil || l.commit == nil {
		return errors.New("insert without relation or transaction")
	}
	r := loopRow{columns: map[string]string{}, commitTime: l.commit.CommitTime}
	for i, c := range m.Tuple.Columns {
		r.columns[relation.Columns[i].Name] = string(c.Data)
	}
	r.position = strings.ToUpper(fmt.Sprintf("%016x-%08d", uint64(l.commit.FinalLSN), l.index))
	l.index++
	return l.publish.send(ctx, &r)
}
