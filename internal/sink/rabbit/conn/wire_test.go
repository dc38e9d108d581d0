package conn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/socket"
)

// counting counts the writes of a connection.
type counting struct {
	net.Conn
	mu     sync.Mutex
	writes int
	hold   chan struct{} // when set, a write waits for it
}

func (c *counting) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
	if c.hold != nil {
		<-c.hold
	}
	return c.Conn.Write(p)
}

func pipe(t *testing.T) (*wire, *counting, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	c := &counting{Conn: near}
	w := newWire(c, c, time.Minute)
	t.Cleanup(func() {
		w.fail(io.EOF)
		_ = far.Close()
		<-w.done
	})
	return w, c, far
}

func TestWireGathersWrites(t *testing.T) {
	w, c, far := pipe(t)
	c.hold = make(chan struct{})
	go w.runFlusher()
	var want []byte
	for i := range 1000 {
		p := bytes.Repeat([]byte{byte(i)}, 100)
		want = append(want, p...)
		if n, err := w.Write(p); n != 100 || err != nil {
			t.Fatal(n, err)
		}
	}
	close(c.hold)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("bytes differ: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes > 3 {
		t.Errorf("%d writes for 1000 messages", c.writes)
	}
}

// Publishers wait for room, and go on when a write has made some.
func TestWireRoom(t *testing.T) {
	w, _, far := pipe(t)
	go w.runFlusher()
	if _, err := w.Write(make([]byte, wireRoom)); err != nil || w.hasRoom() {
		t.Fatalf("room beyond the bound, %v", err)
	}
	waited := make(chan struct{})
	go func() {
		<-w.untilRoom()
		close(waited)
	}()
	select {
	case <-waited:
		t.Fatal("did not wait")
	default:
	}
	if _, err := io.CopyN(io.Discard, far, wireRoom); err != nil {
		t.Fatal(err)
	}
	<-waited
	if !w.hasRoom() {
		t.Error("no room")
	}
}

func TestWireRoomEndsWithTheWire(t *testing.T) {
	w, _, _ := pipe(t)
	go w.runFlusher()
	if _, err := w.Write(make([]byte, wireRoom)); err != nil {
		t.Fatal(err)
	}
	before := w.untilRoom()
	w.fail(io.ErrClosedPipe)
	<-before
	<-w.untilRoom()
}

// A peer that does not read delays nobody: not Write, not Close, not a reader.
func TestWireClosesOnAPeerThatDoesNotRead(t *testing.T) {
	w, _, _ := pipe(t)
	go w.runFlusher()
	for range 100 {
		if _, err := w.Write(make([]byte, wireRoom)); err != nil {
			t.Fatal(err)
		}
	}
	read := make(chan error, 1)
	go func() {
		_, err := w.Read(make([]byte, 1))
		read <- err
	}()
	_ = w.Close()
	if err := <-read; err == nil {
		t.Error("a read went on after Close")
	}
	<-w.done
	if _, err := w.Write([]byte("x")); !errors.Is(err, ErrWireClosed) {
		t.Errorf("write after Close: %v", err)
	}
}

// What is buffered at Close is written: it is the answer to the broker's close.
func TestWireFlushesAtClose(t *testing.T) {
	w, _, far := pipe(t)
	if _, err := w.Write([]byte("close-ok")); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	go w.runFlusher()
	got, err := io.ReadAll(far)
	if err != nil || string(got) != "close-ok" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWireReportsALateWriteError(t *testing.T) {
	w, _, far := pipe(t)
	_ = far.Close()
	go w.runFlusher()
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	<-w.done
	if _, err := w.Write([]byte("y")); !errors.Is(err, ErrWireClosed) {
		t.Errorf("a broken wire takes more: %v", err)
	}
	if w.failure() == nil {
		t.Error("the cause is forgotten")
	}
}

func TestWireReadIsBounded(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	w := newWire(near, near, 20*time.Millisecond)
	var timeout net.Error
	if _, err := w.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a silent peer: %v", err)
	}
	if err := w.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	w.silence = time.Hour
	if _, err := w.Read(make([]byte, 1)); !errors.As(err, &timeout) {
		t.Errorf("past the deadline: %v", err)
	}
	w.fail(io.EOF)
}

// tcpWire is a wire over a socket, without its flusher.
func tcpWire(t *testing.T) (w *wire, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	near = socket.Quiet(near)
	w = newWire(near, near, time.Minute)
	w.pause = 0
	return w, far
}

// An idle socket gets a write without the flusher, which is not there.
func TestWireOfAnIdleSocket(t *testing.T) {
	w, far := tcpWire(t)
	if w.direct == nil {
		return // this system has no such writes
	}
	if n, err := w.Write([]byte("at once")); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	got := make([]byte, 7)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "at once" || w.buffered.Load() != 0 {
		t.Errorf("%q, %v, %d buffered", got, err, w.buffered.Load())
	}
	w.pause = time.Hour
	if _, err := w.Write([]byte("soon after")); err != nil || w.buffered.Load() != 10 {
		t.Errorf("%v, %d buffered: more is likely to come, and the flusher gathers it", err, w.buffered.Load())
	}
}

// What a socket takes in part, and what comes while the flusher writes, stays in its order.
func TestWireOrderOfBothWays(t *testing.T) {
	w, far := tcpWire(t)
	go w.runFlusher()
	defer func() { w.fail(io.EOF); <-w.done }()
	const size = 8 << 20
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i * 31 >> 3)
	}
	got := make([]byte, size)
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(far, got)
		read <- err
	}()
	for i, at := 0, 0; at < size; i++ {
		n := min(1+i*7919%100_000, size-at)
		if _, err := w.Write(want[at : at+n]); err != nil {
			t.Fatal(err)
		}
		at += n
	}
	if err := <-read; err != nil || !bytes.Equal(got, want) {
		t.Errorf("the bytes differ: %v", err)
	}
}

func TestWireRemembersThatItStoodStill(t *testing.T) {
	w, _, far := pipe(t)
	go w.runFlusher()
	go func() { _, _ = far.Write([]byte("ab")) }()
	buf := make([]byte, 1)
	read := func() {
		t.Helper()
		if _, err := io.ReadFull(w, buf); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	read()
	if w.WasFrozen(now) {
		t.Error("frozen while it works")
	}
	if !w.WasFrozen(now.Add(time.Minute)) {
		t.Error("not frozen after a minute of work on one read")
	}
	w.working.Store(now.Add(-time.Minute).UnixNano())
	read()
	if !w.WasFrozen(time.Now()) {
		t.Error("the next read makes it forget")
	}
}

// A huge message over a slow line is progress as long as pieces of it leave.
func TestWireWritesInPieces(t *testing.T) {
	w, _, far := pipe(t)
	go w.runFlusher()
	if _, err := w.Write(make([]byte, 3*wirePiece)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(far, make([]byte, wirePiece+1)); err != nil {
		t.Fatal(err)
	}
	if w.wrote.Load() == 0 {
		t.Error("a piece that left is no progress")
	}
	if w.hasRoom() {
		t.Error("room is given before the message has left")
	}
	if _, err := io.ReadFull(far, make([]byte, 2*wirePiece-1)); err != nil {
		t.Fatal(err)
	}
}

// kinds of frames
const (
	methodFrame, headerFrame, bodyFrame, heartbeatFrame = 1, 2, 3, 8
	frameEnd                                            = 0xCE
)

// frameOf is a frame as a broker sends it.
func frameOf(kind, channel byte, payload string) string {
	b := binary.BigEndian.AppendUint32([]byte{kind, 0, channel}, uint32(len(payload)))
	return string(append(append(b, payload...), frameEnd))
}

func longText(text string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text
}

// FuzzFrames: whatever a broker sends, amqp091 does not panic, and takes no memory for what is only
// announced. It has bounded that since 1.16; versions before allocated a text of 2 GiB at once.
func FuzzFrames(f *testing.F) {
	begins := string([]byte{0, 10, 0, 10, 0, 9}) // connection.start of AMQP 0-9
	var (
		start   = frameOf(methodFrame, 0, begins+longText("\x03cap")+longText("PLAIN")+longText("en_US"))
		tune    = frameOf(methodFrame, 0, "\x00\x0a\x00\x1e\x07\xff\x00\x02\x00\x00\x00\x00")
		opened  = frameOf(methodFrame, 0, "\x00\x0a\x00\x29\x00")
		channel = frameOf(methodFrame, 1, "\x00\x14\x00\x0b"+longText(""))
		deliver = frameOf(methodFrame, 1, "\x00\x3c\x00\x3c\x01c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x02ex\x03key")
		ack     = frameOf(methodFrame, 1, "\x00\x3c\x00\x50\x00\x00\x00\x00\x00\x00\x00\x01\x00")
		content = frameOf(headerFrame, 1, "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x80\x00\x04text")
		large   = frameOf(headerFrame, 1, "\x00\x3c\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x80\x00\x04text")
		text    = frameOf(bodyFrame, 1, "12345")
		claim   = strings.Replace(start, longText("PLAIN"), "\x7f\xff\xff\xffPLAIN", 1)
		login   = start + tune + opened + channel
	)
	for _, one := range []string{start, claim, login + ack, login + deliver + content + text, login + deliver + large + text, login + frameOf(heartbeatFrame, 0, "")} {
		f.Add([]byte(one))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<10 {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if c, err := amqp.Open(sent{bytes.NewReader(in), io.Discard}, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{}}, Locale: "en_US"}); err == nil {
			if ch, err := c.Channel(); err == nil {
				_ = ch.Close()
			}
			_ = c.Close()
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Fatalf("%d bytes are allocated for %d", took, len(in))
		}
	})
}

// sent is a connection on which that was sent, and no more.
type sent struct {
	io.Reader
	io.Writer
}

func (sent) Close() error { return nil }
