package session

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// countedReads counts the reads of a connection.
type countedReads struct {
	net.Conn
	n atomic.Int64
}

func (c *countedReads) Read(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Read(p)
}

// A live event comes in four packets: a Begin, a row, a Commit and a keepalive. It wakes the reader
// for two of them, the row and the Commit.
func TestReadsOfALiveEvent(t *testing.T) {
	const events = 20
	near, far, sock := tcpPair(t)
	from, line := &countedReads{Conn: far}, replicationtest.NewRecorder(1)
	pace := &Coalescer{from: from, sock: sock}
	pace.nap.at(sock)
	se := &Session{
		Shared: &Shared{Encoding: "UTF8", Cfg: &source.Config{Messages: decode.Messages{Prefix: "p"}}}, t: &Term{Line: line},
		conn: far, coalescer: pace, front: pgproto3.NewFrontend(bufio.NewReaderSize(pace, source.ReadBuffer), io.Discard),
	}
	ended := make(chan error, 1)
	go func() { ended <- se.read(context.Background()) }()
	defer func() {
		near.Close()
		<-ended
	}()
	sent := 0
	// packet sends a message, and waits until the reader has read it, or sleeps on.
	packet := func(data []byte) {
		data = append(binary.BigEndian.AppendUint32([]byte{'d'}, uint32(4+len(data))), data...)
		if _, err := near.Write(data); err != nil {
			t.Fatal(err)
		}
		sent += len(data)
		await.Until(t, "the packet to be there", func() bool {
			waits := 0
			if err := sock.Control(func(fd uintptr) { waits, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); err != nil {
				t.Fatal(err)
			}
			pace.nap.mu.Lock()
			defer pace.nap.mu.Unlock()
			return int(pace.total.Load())+waits == sent && (waits == 0 || pace.nap.on && waits < napBytes)
		})
		waitAsleep(t)
	}
	numbers := func(kind byte, values ...uint64) []byte {
		data := []byte{kind}
		for _, v := range values {
			data = binary.BigEndian.AppendUint64(data, v)
		}
		return data
	}
	xlog := func(data ...byte) []byte { return append(numbers('w', 0, 0, 0), data...) }
	for lsn := uint64(10); lsn < 10+events; lsn++ {
		packet(xlog(append(numbers('B', lsn, 0), 0, 0, 0, 1)...))
		packet(xlog('M', 1, 0, 0, 0, 0, 0, 0, 0, 0, 'p', 0, 0, 0, 0, 2, '{', '}'))
		packet(xlog(append([]byte{'C'}, numbers(0, lsn, lsn, 0)...)...))
		packet(append(numbers('k', lsn, 0), 0))
	}
	if n := len(line.All()); n != events {
		t.Fatalf("%d events", n)
	}
	if n := from.n.Load(); n > 2*events+2 { // the first Begin, and the one that waits
		t.Errorf("%d reads for %d events", n, events)
	}
}
