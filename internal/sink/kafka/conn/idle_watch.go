// The end of a connection that is idle.

package conn

import (
	"sync/atomic"
	"time"
)

// Watch watches the connection while no request is under way. When the broker ends it, or sends
// bytes without a request, Watch closes the connection and signals ended, which has room for one
// signal. unwatch ends the watch and must be called before the next request.
func (c *Conn) Watch(ended chan<- struct{}) (unwatch func()) {
	var unwatched atomic.Bool
	done := make(chan struct{})
	failed := c.net.SetReadDeadline(time.Time{}) // the last request's deadline is still set
	go func() {
		defer close(done)
		if failed == nil {
			_, _ = c.reader.Peek(1) //nolint:errcheck // a deadline is unwatch's; after anything else the connection is useless
		}
		if !unwatched.Load() {
			c.Close()
			Notify(ended)
		}
	}()
	return func() {
		unwatched.Store(true)
		if err := c.net.SetReadDeadline(time.Unix(1, 0)); err != nil {
			c.Close() // it ends the wait, too
		}
		<-done
	}
}

// Notify signals a channel with room for one.
func Notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
