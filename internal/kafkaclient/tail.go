// The end of a partition's log, read back: which records an earlier process has stored there, so
// that they need not be stored again.
//
// A record that can be read is not yet one that was confirmed. When too few replicas are in sync,
// the broker appends, answers with an error (NOT_ENOUGH_REPLICAS_AFTER_APPEND), and shows the
// record to consumers although it is on one disk. So the log is read, then a confirm is asked for,
// and then the log is read again:
//
//  1. The first reading finds the last batch of ours.
//  2. That batch is sent again, byte for byte, under the producer id and the sequence that it has
//     in the log, as its producer would after a lost answer. The broker recognizes it, stores
//     nothing, and confirms it by the rule of acks=all: enough replicas have the log up to its end.
//  3. The second reading, on the connection that has brought the confirm, shows the log up to
//     there. What it shows lies before a confirmed offset of the same log, so the same replicas
//     have it. The batch must have its place still, and the leader's epoch that it had: then no
//     other leader has replaced what lies before it.
//
// Whatever else happens ends it, and nothing is known: a refusal, or another batch at that place.
// The caller sends its events then, and some arrive twice. A broker that no longer knows the
// producer stores the batch once more. That confirms what lies before it, too, and the records of
// this one batch arrive twice.
//
// The producer whose batch is sent again may live: a former leader that was frozen, or a program
// that copies topics. It loses nothing. Its numbers are used with its own bytes alone, and never
// for other records, so no batch of it can be taken for one of ours.

package kafkaclient

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// What is read of a partition at most, and how much at a time.
const (
	tailBytes   = 4 << 20
	tailFetch   = 1 << 20
	decodedTail = 16 << 20 // memory for the records of one batch
	tailStep    = 500      // offsets of the first look; each look goes back four times as far
	tailOffsets = 20000    // offsets in all
)

// TailReader is shown the records at the end of a log.
type TailReader interface {
	// Begin is called before each reading: what was seen before does not count.
	Begin()
	// See is called with each record outside of transactions, by piece of the log from its end on.
	// It reports whether the record may be the caller's. The record is valid until it returns.
	See(m *kafkago.Message) bool
	// Enough reports whether the pieces that were seen reach far enough back.
	Enough() bool
	// Found reports, after the first reading, whether anything was found that is to be confirmed.
	Found() bool
}

// ReadTail shows r the end of a partition's log, as the comment of this file says. With a nil error
// everything that r has seen since the last Begin is confirmed. That is nothing when what is to be
// confirmed is not in the last 4 MiB. The error is kafkago.NotLeaderForPartition as soon as another
// broker leads, also while this one does not answer.
func (c *Client) ReadTail(ctx context.Context, topic string, partition int32, r TailReader) error {
	leader, ok := c.Metadata.Load().Leader(topic, partition)
	if !ok {
		return kafkago.LeaderNotAvailable
	}
	if err := c.Broker(leader.Node).tails.read(ctx, topic, partition, r); err != nil {
		return fmt.Errorf("read the end of %s-%d: %w", topic, partition, err)
	}
	return nil
}

const (
	// tailReaders is how many logs are read at the same time: each takes some MiB.
	tailReaders = 4
	// tailConfirm is how long the replicas may take to confirm what is sent again: the broker's
	// other logs are read behind it.
	tailConfirm = 5 * time.Second
)

// tailWorker reads the logs that a broker leads, one after the other, on one connection. So fewer
// than tailReaders brokers that do not answer keep nobody from reading the logs of others.
type tailWorker struct {
	worker
	turn    chan struct{} // has room for whoever reads
	readers atomic.Int32  // how many read, or wait for the turn
}

func (w *tailWorker) read(ctx context.Context, topic string, partition int32, r TailReader) error {
	w.readers.Add(1)
	defer w.leave()
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.turn }()
	select {
	case w.client.tailRoom <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.client.tailRoom }()
	w.parts = []*ProducerBatch{{Topic: topic, Partition: partition}}
	err := w.open(ctx)
	if err == nil {
		conn, ok := w.conn.(*Conn)
		if !ok {
			return errors.New("the connection cannot fetch")
		}
		confirm := min(w.client.Options.ConfirmTimeout, tailConfirm).Milliseconds()
		err = readTail(ctx, &tailLog{conn: conn, watch: w.watch, topic: topic, partition: partition, confirm: confirm}, r)
	}
	if err != nil {
		w.hangUp()
	}
	return err
}

// open makes sure that there is a connection.
func (w *tailWorker) open(ctx context.Context) error {
	if w.conn != nil && w.conn.Usable() {
		return nil
	}
	w.hangUp()
	addr, known := w.client.Metadata.Load().Brokers[w.queue.Node]
	if !known {
		return kafkago.BrokerNotAvailable
	}
	dial, cancel := context.WithCancel(ctx)
	defer cancel()
	err := w.watch(cancel, func() (err error) {
		w.conn, err = w.client.connect(dial, addr)
		return err
	})
	switch {
	case err == nil:
		w.client.Connections.Add(1)
		w.client.noteBroker(w.queue.Node, "")
		return nil
	case ctx.Err() == nil && !errors.Is(err, kafkago.NotLeaderForPartition):
		w.client.noteBroker(w.queue.Node, w.client.Options.Explain(err))
	}
	w.conn = nil
	return err
}

// watch does something that the broker is to answer. It is given up with stop when another broker
// leads the partition, and the broker counts as down while it does not answer.
func (w *tailWorker) watch(stop func(), do func() error) error {
	w.timer.watchRequest(w.parts, stop, overdueMin)
	err := do()
	if _, moved := w.endRequest(err); moved && err != nil {
		return kafkago.NotLeaderForPartition
	}
	return err
}

// leave ends the connection when nobody else wants to read.
func (w *tailWorker) leave() {
	if w.readers.Add(-1) > 0 {
		return
	}
	select {
	case w.turn <- struct{}{}:
		w.hangUp()
		<-w.turn
	default: // somebody has come
	}
}

// partitionLog is the log of a partition at its leader.
type partitionLog interface {
	// bounds are the first offset and the end: consumers see what is before it.
	bounds(ctx context.Context) (first, end int64, err error)
	// read returns the batches from the one with an offset on: one or more, none at the end. They
	// are valid until the next call.
	read(ctx context.Context, from int64) ([]logBatch, error)
	// sendAgain sends a batch with acks=all, and returns the offset that the answer gives it.
	sendAgain(ctx context.Context, b *logBatch) (base int64, err error)
}

// logBatch is a batch in a log.
type logBatch struct {
	first, last int64  // its offsets
	raw         []byte // as the log has it
	attributes  int16
	producer    int64
	count       int32
}

// the attributes of a batch that only a broker sets
const (
	brokersTime   = 0x08 // the time is the broker's
	deleteHorizon = 0x40 // the batch was compacted
)

// isWhole reports whether the batch is as an idempotent producer has sent it, outside of a
// transaction: nothing was compacted away.
func (b *logBatch) isWhole() bool {
	return b.attributes&(transactional|controlBatch|deleteHorizon) == 0 && b.producer >= 0 && int64(b.count) == b.last-b.first+1
}

// isPlain reports whether its records are outside of a transaction.
func (b *logBatch) isPlain() bool { return b.attributes&(transactional|controlBatch) == 0 }

// sealed is the batch as a producer sends it: with the length of the RECORDS field before it.
func (b *logBatch) sealed() []byte {
	out := make([]byte, baseOffsetAt+len(b.raw))
	copy(out[baseOffsetAt:], b.raw)
	be := binary.BigEndian
	be.PutUint32(out[lengthAt:], uint32(len(b.raw)))
	be.PutUint64(out[baseOffsetAt:], 0)
	be.PutUint32(out[leaderEpochAt:], ^uint32(0))
	be.PutUint16(out[AttributesAt:], uint16(b.attributes&^brokersTime))
	be.PutUint32(out[CrcAt:], crc32.Checksum(out[AttributesAt:], CRCTable))
	return out
}

var errLogChanged = errors.New("the log has changed")

// readTail reads, has the last batch of ours confirmed, and reads again. If the tail is too large,
// nothing is known.
func readTail(ctx context.Context, log partitionLog, r TailReader) (err error) {
	defer func() {
		var over *TooLargeError
		if errors.As(err, &over) {
			r.Begin()
			err = nil
		}
	}()
	first, end, err := log.bounds(ctx)
	if err != nil {
		return err
	}
	r.Begin()
	var ours *logBatch // the last one
	from, until, left := end, end, tailBytes
	for step := int64(tailStep); from > max(first, end-tailOffsets) && !r.Enough(); step *= 4 {
		from = max(first, end-tailOffsets, from-step)
		lowest := until
		err := readPiece(ctx, log, from, until, &left, func(b *logBatch, isOurs bool) {
			lowest = min(lowest, b.first)
			if isOurs && b.isWhole() && (ours == nil || b.last > ours.last) {
				kept := *b
				kept.raw = bytes.Clone(b.raw)
				ours = &kept
			}
		}, r)
		if err != nil {
			return err
		}
		until = min(from, lowest)
	}
	if ours == nil || !r.Found() {
		r.Begin()
		return nil
	}
	base, err := log.sendAgain(ctx, ours)
	if err != nil {
		return err
	}
	if base < ours.first {
		return errLogChanged
	}
	r.Begin()
	same, left := false, tailBytes
	err = readPiece(ctx, log, from, ours.last+1, &left, func(b *logBatch, _ bool) {
		same = same || bytes.Equal(b.raw, ours.raw)
	}, r)
	if err == nil && !same {
		err = errLogChanged
	}
	return err
}

// readPiece shows r the records of the batches from the one with an offset on to the one before
// until, and calls each with every batch and whether all of its records are ours. left is how many
// bytes may be read.
func readPiece(ctx context.Context, log partitionLog, from, until int64, left *int, each func(*logBatch, bool), r TailReader) error {
	for from < until {
		batches, err := log.read(ctx, from)
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			return errLogChanged // it ended behind until
		}
		for i := range batches {
			b := &batches[i]
			if b.first >= until {
				return nil
			}
			if *left -= len(b.raw); *left < 0 {
				return &TooLargeError{tailBytes}
			}
			isOurs := b.isPlain()
			if isOurs {
				if isOurs, err = b.show(r); err != nil {
					return err
				}
			}
			each(b, isOurs)
			from = b.last + 1
		}
	}
	return nil
}

// show shows the records of a batch, and reports whether all of them may be the caller's.
func (b *logBatch) show(r TailReader) (ours bool, err error) {
	decoded := fetchedBatches{budget: budget{decodedTail, decodedTail}}
	if err := decoded.readBatch(b.raw); err != nil {
		return false, err
	}
	ours = len(decoded.messages) > 0
	for i := range decoded.messages {
		ours = r.See(&decoded.messages[i]) && ours
	}
	return ours, nil
}

// tailLog is the partitionLog of a broker.
type tailLog struct {
	conn      *Conn
	watch     func(stop func(), do func() error) error
	topic     string
	partition int32
	confirm   int64 // for how long the broker may wait for its replicas, in ms
}

func (l *tailLog) bounds(ctx context.Context) (first, end int64, err error) {
	if first, err = l.offset(ctx, FirstOffset); err == nil {
		end, err = l.offset(ctx, EndOffset)
	}
	return first, end, err
}

func (l *tailLog) offset(ctx context.Context, at int64) (int64, error) {
	res, err := tailAnswer[*listoffsets.Response](ctx, l, &listoffsets.Request{
		ReplicaID: None, Topics: []listoffsets.RequestTopic{{Topic: l.topic, Partitions: []listoffsets.RequestPartition{{
			Partition: l.partition, CurrentLeaderEpoch: None, Timestamp: at,
		}}}},
	})
	switch {
	case err != nil:
		return 0, err
	case len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1:
		return 0, errNoPartition
	}
	said := &res.Topics[0].Partitions[0]
	return said.Offset, codeOrNil(said.ErrorCode)
}

func (l *tailLog) read(ctx context.Context, from int64) (batches []logBatch, err error) {
	req := &fetch.Request{
		ReplicaID: None, MaxWaitTime: 0, MinBytes: 0, MaxBytes: tailFetch,
		Topics: []fetch.RequestTopic{{Topic: l.topic, Partitions: []fetch.RequestPartition{{
			Partition: l.partition, FetchOffset: from, PartitionMaxBytes: tailFetch,
		}}}},
	}
	l.conn.fetchLimit = tailBytes + tailFetch // a first batch comes whole, however large it is
	err = l.watch(l.conn.Close, func() error {
		return l.conn.exchange(ctx, RequestTimeout, req, func(body []byte, _ int16) error {
			answer, err := readFetchHead(body, l.topic, int(l.partition))
			if err == nil {
				err = codeOrNil(answer.code)
			}
			if err != nil {
				return err
			}
			batches, err = splitBatches(answer.set)
			return err
		})
	})
	return batches, err
}

// tailAnswer is RoundTripAs, watched.
func tailAnswer[R protocol.Message](ctx context.Context, l *tailLog, req protocol.Message) (res R, err error) {
	err = l.watch(l.conn.Close, func() (err error) {
		res, err = RoundTripAs[R](ctx, l.conn, RequestTimeout, req)
		return err
	})
	return res, err
}

// splitBatches are the batches of a fetched set. The last one may be incomplete, and is left out.
func splitBatches(set []byte) (batches []logBatch, err error) {
	err = eachBatch(set, func(raw []byte) error {
		be := binary.BigEndian
		b := logBatch{
			first: int64(be.Uint64(raw)), raw: raw, attributes: int16(be.Uint16(raw[AttributesAt-baseOffsetAt:])),
			producer: int64(be.Uint64(raw[producerIDAt-baseOffsetAt:])), count: int32(be.Uint32(raw[countAt-baseOffsetAt:])),
		}
		b.last = b.first + int64(int32(be.Uint32(raw[lastOffsetAt-baseOffsetAt:])))
		if b.last < b.first {
			return fmt.Errorf("%w: a batch has no offset", ErrDamaged)
		}
		batches = append(batches, b)
		return nil
	})
	return batches, err
}

func (l *tailLog) sendAgain(ctx context.Context, b *logBatch) (base int64, err error) {
	res, err := tailAnswer[*produce.Response](ctx, l, &rawproduce.Request{
		Acks: -1, Timeout: int32(l.confirm),
		Topics: []rawproduce.RequestTopic{{Topic: l.topic, Partitions: []rawproduce.RequestPartition{{
			Partition: l.partition, RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(b.sealed())},
		}}}},
	})
	switch {
	case err != nil:
		return 0, err
	case len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1:
		return 0, errNoPartition
	}
	said := &res.Topics[0].Partitions[0]
	return said.BaseOffset, codeOrNil(said.ErrorCode)
}

func codeOrNil(code int16) error {
	if code == 0 {
		return nil
	}
	return kafkago.Error(code)
}
