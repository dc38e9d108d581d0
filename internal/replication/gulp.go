package replication

import (
	"io"
	"sync/atomic"
	"time"
)

// gulp paces the reads of the replication connection. A reader that reads at once what has come makes the walsender
// send every row by itself; one that pauses a little before a read, when the last one was small and rows come fast,
// lets the server work in larger pieces: 1.3 to 1.6 times as many single-row transactions a second. At a low rate it
// never pauses, so it adds no latency there.
type gulp struct {
	from  io.Reader
	total atomic.Uint64 // bytes read, for whoever asks whether the server is silent

	bytes int64 // read since mark
	mark  time.Time
	busy  bool // the rate up to mark was high
	small bool // the last read was
}

const (
	gulpPause    = 150 * time.Microsecond // at least: an otherwise idle process wakes up a millisecond later
	gulpSmall    = 32 << 10               // a read below this many bytes was small
	gulpRate     = 6 << 20                // bytes a second: some 20,000 rows of 300 bytes
	gulpInterval = 5 * time.Millisecond
)

// Read pauses when the stream is busy and the last read was small, then reads what has come.
func (g *gulp) Read(p []byte) (int, error) {
	if g.busy && g.small {
		time.Sleep(gulpPause)
	}
	n, err := g.from.Read(p)
	g.bytes += int64(n)
	g.total.Add(uint64(n))
	g.small = n < gulpSmall
	if g.small {
		now := time.Now()
		if since := now.Sub(g.mark); since >= gulpInterval {
			g.busy = float64(g.bytes) >= gulpRate*since.Seconds() // since may be hours: whole nanoseconds would overflow
			g.bytes, g.mark = 0, now
		}
	}
	return n, err
}
