// The baseline of latency: one goroutine that reads the slot, publishes, awaits the broker's word,
// and reports.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// publicationSQL makes what all but the relay need in their database.
const publicationSQL = "CREATE PUBLICATION bench FOR TABLE outbox WITH (publish = 'insert')"

// bareLoop is the loop as a program.
type bareLoop struct{}

func (bareLoop) prepare(ctx context.Context, s *stand, _ load) error {
	return s.exec(ctx, publicationSQL)
}

// start returns when it streams. It has a temporary slot, which goes with its connection.
func (bareLoop) start(ctx context.Context, s *stand, to place, _ load) (process, error) {
	conn, err := pgconn.Connect(ctx, s.db+"&replication=database")
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	l := &loop{conn: conn, done: make(chan struct{})}
	if l.publish, err = s.broker.dial(to); err == nil {
		_, err = pglogrepl.CreateReplicationSlot(ctx, conn, "bench_loop", "pgoutput", pglogrepl.CreateReplicationSlotOptions{Temporary: true})
	}
	if err == nil {
		options := pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'", `publication_names '"bench"'`}}
		err = pglogrepl.StartReplication(ctx, conn, "bench_loop", 0, options)
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("start replication: %w", err)
	}
	ctx, l.cancel = context.WithCancel(ctx)
	l.self = self{func() error {
		select {
		case <-l.done:
			return cmp.Or(l.err, errors.New("it was stopped"))
		default:
			return nil
		}
	}}
	go func() {
		defer close(l.done)
		l.err = l.run(ctx)
	}()
	return l, nil
}

// loop is a bare loop that runs.
type loop struct {
	self
	conn     *pgconn.PgConn
	publish  publish
	relation *pglogrepl.RelationMessage
	commit   *pglogrepl.BeginMessage
	index    int

	cancel context.CancelFunc
	done   chan struct{}
	err    error // why it has ended, when it has
}

func (l *loop) close() {
	if l.publish.close != nil {
		l.publish.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l.conn.Close(ctx)
}

// Stop ends the loop and returns why it ended before, if it did.
func (l *loop) Stop(context.Context) error {
	l.cancel()
	<-l.done
	l.close()
	return l.err
}

// Kill is Stop.
func (l *loop) Kill() error { return l.Stop(context.Background()) }

// run reports every commit, and so soon that no keepalive has to be answered.
func (l *loop) run(ctx context.Context) error {
	for {
		msg, err := l.conn.ReceiveMessage(ctx)
		if data, ok := msg.(*pgproto3.CopyData); err == nil && ok && data.Data[0] == pglogrepl.XLogDataByteID {
			err = l.change(ctx, data.Data[1:])
		}
		// stopped when all had arrived; the answer to the last row may still have been on its way
		if ctx.Err() != nil {
			return nil // that is why
		}
		if err != nil {
			return err
		}
	}
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
		l.relation = m
	case *pglogrepl.BeginMessage:
		l.commit, l.index = m, 0
	case *pglogrepl.InsertMessage:
		r := loopRow{columns: map[string]string{}, commitTime: l.commit.CommitTime}
		for i, c := range m.Tuple.Columns {
			r.columns[l.relation.Columns[i].Name] = string(c.Data)
		}
		r.position = fmt.Sprintf("%016X-%08d", uint64(l.commit.FinalLSN), l.index)
		l.index++
		return l.publish.send(ctx, &r)
	case *pglogrepl.CommitMessage:
		end := m.TransactionEndLSN
		return pglogrepl.SendStandbyStatusUpdate(ctx, l.conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: end, WALFlushPosition: end, WALApplyPosition: end})
	}
	return nil
}
