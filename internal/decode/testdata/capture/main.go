// Command capture writes the WAL of a scenario, as a real server sends it, as a story for
// TestStories and as seeds for FuzzDecode. It was run once per file in ../wal; run it again only
// for a scenario or a server version that is new:
//
//	go run ./internal/decode/testdata/capture URL < scenario.sql > internal/decode/testdata/wal/NAME
//	go test ./internal/decode -run TestStories -rewrite
//
// The database is a scratch one: the scenario's tables, a publication and a temporary slot are made
// in it. Statements end with a line "--"; those before the line "-- stream" only prepare.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const settings = " options='-c bytea_output=hex -c DateStyle=ISO -c TimeZone=UTC'"

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "capture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	script, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	setup, changes, _ := strings.Cut(string(script), "-- stream\n")
	db, err := pgconn.Connect(ctx, url)
	if err != nil {
		return err
	}
	stream, err := pgconn.Connect(ctx, url+" replication=database"+settings)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, setup).ReadAll(); err != nil {
		return err
	}
	fmt.Print(comment(setup))
	if _, err := pglogrepl.CreateReplicationSlot(ctx, stream, "capture", "pgoutput",
		pglogrepl.CreateReplicationSlotOptions{Temporary: true}); err != nil {
		return err
	}
	if err := pglogrepl.StartReplication(ctx, stream, "capture", 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '\"capture\"'", "messages 'true'"}}); err != nil {
		return err
	}
	for _, statement := range strings.Split(changes, "--\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := db.Exec(ctx, statement).ReadAll(); err != nil {
			return err
		}
		fmt.Print("\n", comment(statement), "wal\n")
		if err := frames(ctx, db, stream); err != nil {
			return err
		}
		fmt.Println("----")
	}
	return nil
}

// frames prints what arrives until a keepalive reports the present end of the WAL.
func frames(ctx context.Context, db, stream *pgconn.PgConn) error {
	rows, err := db.Exec(ctx, "SELECT pg_current_wal_flush_lsn()").ReadAll()
	if err != nil {
		return err
	}
	end, err := pglogrepl.ParseLSN(string(rows[0].Rows[0][0]))
	if err != nil {
		return err
	}
	for {
		if err := pglogrepl.SendStandbyStatusUpdate(ctx, stream,
			pglogrepl.StandbyStatusUpdate{WALWritePosition: 1, WALFlushPosition: 1, WALApplyPosition: 1, ReplyRequested: true}); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		msg, err := stream.ReceiveMessage(limited)
		cancel()
		if err != nil {
			return err
		}
		data, ok := msg.(*pgproto3.CopyData)
		if !ok {
			return fmt.Errorf("unexpected %T", msg)
		}
		switch data.Data[0] {
		case pglogrepl.XLogDataByteID:
			x, err := pglogrepl.ParseXLogData(data.Data[1:])
			if err != nil {
				return err
			}
			fmt.Printf("%x\n", x.WALData)
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data.Data[1:])
			if err != nil {
				return err
			}
			if k.ServerWALEnd >= end {
				return nil
			}
		}
	}
}

func comment(sql string) string {
	return "# " + strings.ReplaceAll(strings.TrimSpace(sql), "\n", "\n# ") + "\n"
}
