// Allocations per event between the bytes of the slot and a sink that costs nothing.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// nullSink confirms all at once.
type nullSink struct{}

func (nullSink) Place(ev *event.Event) (sink.Place, bool) {
	return sink.Place{Lane: int(ev.Hash % 32), ExchangeOrTopic: 1, Dest: 1}, true
}
func (nullSink) Route(*event.Event) event.Route { return event.Route{} }
func (nullSink) Changed() <-chan struct{}       { return nil }
func (nullSink) Run(ctx context.Context) error  { <-ctx.Done(); return nil }
func (nullSink) Publish(_ context.Context, _ int, events []*event.Event, outcomes []sink.Outcome) error {
	for i := range events {
		outcomes[i].State = sink.Confirmed
	}
	return nil
}

// allocations decodes transactions of 100 rows of 1,000 keys and sends them through the line.
func allocations(context.Context) ([]result, error) {
	var failed error
	b := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		if err := decodeAndRelay(b); err != nil && failed == nil {
			failed = err
		}
	})
	if failed != nil {
		return nil, failed
	}
	if b.N == 0 {
		return nil, errors.New("nothing was measured")
	}
	per := float64(b.MemAllocs) / float64(b.N)
	return []result{{
		name: "allocations per event in decode + relay with a null sink", ours: fmt.Sprintf("%.3f, %.0f bytes", per, float64(b.MemBytes)/float64(b.N)),
		value: per, unit: "allocs", must: 2, aim: 0.05, aimText: "0 amortised", once: true,
		note: fmt.Sprintf("%d events, %.2f µs each", b.N, float64(b.T.Nanoseconds())/float64(b.N)/1e3),
	}}, nil
}

func decodeAndRelay(b *testing.B) error {
	const rows, keys = 100, 1000
	names := keyset{count: keys}.draw(keys)
	line := relay.New(relay.Config{Ordering: relay.Key, Sink: nullSink{}, RetryTable: nullRetryTable{}})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	var ended error
	running.Go(func() { ended = line.Run(ctx) })
	defer running.Wait()
	defer cancel()
	one := func(name string) decode.Names { return decode.Names{Any: []string{name}} }
	d := decode.New(decode.Config{Tables: []decode.Table{{Schema: "public", Name: "outbox", Mapping: decode.Mapping{
		ID: one("id"), Aggregate: one("aggregatetype"), Key: one("aggregateid"), Type: one("type"), Payload: one("payload"),
	}}}})
	var msg decode.Message
	if err := d.Decode(relationFrame(), &msg); err != nil {
		return err
	}
	var wal []byte
	payload := appendPayload(nil, 1, payloadSize)
	lsn := uint64(1000)
	n := 0
	b.ResetTimer()
	for ; n < b.N; n++ {
		if n%rows == 0 {
			lsn += 1000
			wal = beginFrame(wal[:0], lsn)
			if err := d.Decode(wal, &msg); err != nil {
				return err
			}
			if err := line.Begin(msg.Commit, msg.Xid); err != nil {
				return err
			}
		}
		wal = insertFrame(wal[:0], "00000000-0000-0000-0000-000000000001", "order", names[n%keys], "created", payload)
		if err := d.Decode(wal, &msg); err != nil {
			return err
		}
		if err := line.Event(ctx, msg.Event); err != nil {
			return err
		}
		if n%rows == rows-1 || n == b.N-1 {
			wal = commitFrame(wal[:0], lsn)
			if err := d.Decode(wal, &msg); err != nil {
				return err
			}
			line.Commit(msg.End)
			line.Wake(true)
		}
	}
	if err := line.WaitSettled(ctx); err != nil {
		return err
	}
	cancel()
	running.Wait()
	if got := line.Watermark().LSN; got != pglogrepl.LSN(lsn+100) {
		return fmt.Errorf("watermark is %s, want %s", got, pglogrepl.LSN(lsn+100))
	}
	return ended
}

// The frames, as the manual's "Logical Replication Message Formats" has them.

func relationFrame() []byte {
	b := append([]byte{'R'}, 0, 0, 0x40, 0)
	b = append(b, "public\x00outbox\x00d"...)
	columns := []struct {
		name string
		oid  uint32
	}{{"id", 2950}, {"aggregatetype", 25}, {"aggregateid", 25}, {"type", 25}, {"payload", 3802}}
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		b = append(append(append(b, 0), c.name...), 0)
		b = binary.BigEndian.AppendUint32(b, c.oid)
		b = binary.BigEndian.AppendUint32(b, 0xffffffff)
	}
	return b
}

func beginFrame(b []byte, lsn uint64) []byte {
	b = binary.BigEndian.AppendUint64(append(b, 'B'), lsn)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7) // time, xid
}

func commitFrame(b []byte, lsn uint64) []byte {
	b = binary.BigEndian.AppendUint64(append(b, 'C', 0), lsn)
	b = binary.BigEndian.AppendUint64(b, lsn+100)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0) // time
}

func insertFrame(b []byte, id, aggregate, key, typ string, payload []byte) []byte {
	b = append(b, 'I', 0, 0, 0x40, 0, 'N', 0, 5)
	for _, column := range [...]string{id, aggregate, key, typ} {
		b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(column)))
		b = append(b, column...)
	}
	b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(payload)))
	return append(b, payload...)
}

// nullRetryTable has nothing to do: nullSink refuses nothing.
type nullRetryTable struct{}

func (nullRetryTable) Defer([]*relay.Deferred)                           {}
func (nullRetryTable) Fed([]*relay.Fed)                                  {}
func (nullRetryTable) Known(context.Context, *event.Event) (bool, error) { return false, nil }
