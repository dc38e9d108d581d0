package netproxy

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// echo is a server that sends back what it gets.
func echo(t testing.TB) string {
	l, err := processes.ListenFree()
	await.Must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(struct{ io.Writer }{conn}, conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func proxied(t testing.TB) *Proxy {
	p, err := Start(echo(t))
	await.Must(t, err)
	t.Cleanup(p.Close)
	return p
}

func dial(t testing.TB, p *Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	await.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	await.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn.(*net.TCPConn)
}

func say(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	_, err := conn.Write([]byte(text))
	await.Must(t, err)
}

func hear(t testing.TB, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(conn, got)
	await.Must(t, err)
	if string(got) != want {
		t.Fatalf("heard %q, want %q", got, want)
	}
}

func silent(t testing.TB, conn net.Conn) {
	t.Helper()
	await.Must(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !isTimeout(err) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
	await.Must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestHoldKeepsBytesBackInOrder(t *testing.T) {
	for name, d := range map[string]Direction{"up": Up, "down": Down} {
		t.Run(name, func(t *testing.T) {
			ctx := await.Context(t)
			p := proxied(t)
			conn := dial(t, p)
			say(t, conn, "before")
			hear(t, conn, "before")
			p.Hold(d)
			if p.HeldBytes(d) != 0 {
				t.Fatal("bytes of before are counted")
			}
			for _, word := range []string{"one", "two", "three"} {
				say(t, conn, word)
			}
			await.Must(t, p.WaitHeld(ctx, d, 11))
			other := dial(t, p)
			say(t, other, "new")
			await.Must(t, p.WaitHeld(ctx, d, 14))
			if p.HeldBytes(d) != 14 {
				t.Fatalf("%d bytes are held, want 14", p.HeldBytes(d))
			}
			silent(t, conn)
			p.Release(d)
			say(t, conn, "four")
			hear(t, conn, "onetwothreefour")
			hear(t, other, "new")
		})
	}
}

func TestHeldBytesOfAClosedClientArriveAfterRelease(t *testing.T) {
	l, err := processes.ListenFree()
	await.Must(t, err)
	defer l.Close()
	p, err := Start(l.Addr().String())
	await.Must(t, err)
	defer p.Close()
	p.Hold(Up)
	client := dial(t, p)
	server, err := l.Accept()
	await.Must(t, err)
	defer server.Close()
	say(t, client, "last words")
	await.Must(t, p.WaitHeld(await.Context(t), Up, 10))
	await.Must(t, client.SetLinger(0)) // as a killed process with unread bytes
	client.Close()
	say(t, server, "to a dead client")
	p.Release(Up)
	got, err := io.ReadAll(server)
	await.Must(t, err)
	if string(got) != "last words" {
		t.Fatalf("server got %q", got)
	}
}

func TestCutRefusesUntilRestored(t *testing.T) {
	p := proxied(t)
	conn := dial(t, p)
	say(t, conn, "x")
	hear(t, conn, "x")
	p.Cut()
	if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Fatalf("read says %v, want the end", err)
	}
	if c, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			c.Close()
		}
		t.Fatalf("dial says %v, want refused", err)
	}
	await.Must(t, p.Restore())
	conn = dial(t, p)
	say(t, conn, "again")
	hear(t, conn, "again")
}

func TestResetIsAReset(t *testing.T) {
	p := proxied(t)
	p.Hold(Up)
	conn := dial(t, p)
	say(t, conn, "thrown away")
	await.Must(t, p.WaitHeld(await.Context(t), Up, 11))
	p.Reset()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read says %v, want reset", err)
	}
	p.Release(Up)
	conn = dial(t, p)
	say(t, conn, "y")
	hear(t, conn, "y")
	// the old one is forgotten
	await.Must(t, processes.Poll(await.Context(t), time.Millisecond, func() (bool, error) { return p.Connections() == 1, nil }))
}

func TestStallAcceptsAndForwardsNothing(t *testing.T) {
	p := proxied(t)
	old := dial(t, p)
	say(t, old, "x")
	hear(t, old, "x")
	p.Stall()
	fresh := dial(t, p)
	say(t, old, "old")
	say(t, fresh, "fresh")
	silent(t, old)
	silent(t, fresh)
	await.Must(t, p.Restore())
	hear(t, old, "old")
	hear(t, fresh, "fresh")
}

func TestBytesSurviveEveryChangeOfSettings(t *testing.T) {
	p := proxied(t)
	conn := dial(t, p)
	sent := make([]byte, 8<<20)
	_, _ = rand.Read(sent)
	var wg sync.WaitGroup
	wg.Go(func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 100_000)
			if _, err := conn.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
	})
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				p.Delay(0)
				return
			default:
			}
			d := Direction(i / 2 % 2)
			p.Hold(d)
			p.Delay(time.Duration(i%3) * time.Millisecond)
			p.Trickle((i % 2) * 100_000_000)
			p.Release(d)
		}
	})
	got := make([]byte, len(sent))
	_, err := io.ReadFull(conn, got)
	close(stop)
	wg.Wait()
	await.Must(t, err)
	if !bytes.Equal(got, sent) {
		t.Fatal("bytes differ")
	}
}

func TestTrickleAndDelayLetEverythingThrough(t *testing.T) {
	p := proxied(t)
	conn := dial(t, p)
	p.Trickle(1000)
	start := time.Now()
	say(t, conn, "a hundred bytes a tenth of a second"+string(make([]byte, 65)))
	hear(t, conn, "a hundred bytes a tenth of a second"+string(make([]byte, 65)))
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Fatalf("100 bytes each way at 1000 a second took %v", took)
	}
	p.Trickle(0)
	p.Delay(20 * time.Millisecond)
	start = time.Now()
	say(t, conn, "z")
	hear(t, conn, "z")
	if took := time.Since(start); took < 40*time.Millisecond {
		t.Fatalf("a round trip with 20 ms each way took %v", took)
	}
}

func TestSpoilChangesTheTextWhereverItIsCut(t *testing.T) {
	p := proxied(t)
	p.Spoil([]byte("abc"))
	conn := dial(t, p)
	for _, said := range []string{"1 abc 2 ab", "c abcabc", " abx a", "bc a"} {
		say(t, conn, said)
	}
	hear(t, conn, "1 abb 2 abb abbabb abx abb a")
	p.Spoil(nil)
	other := dial(t, p)
	say(t, other, "abc")
	hear(t, other, "abc")
}
