// What keeps a connection: it dials, waits for the end and dials again.

package conn

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Reconnecting pauses for about backoffMin at first and for backoffMax at most.
const (
	BackoffMin = 100 * time.Millisecond
	backoffMax = 2 * time.Second
)

// Link keeps one of the sink's connections: its goroutine dials, waits for the end and dials again.
// Lanes ask it for the session that is up.
type Link struct {
	// Connect opens a session. The argument is called when its broker blocks or unblocks.
	Connect func(ctx context.Context, onBlocked func(bool)) (*Session, error)
	// OnConnected is called before lanes have the session; again says that there was one before.
	OnConnected func(ctx context.Context, sess *Session, again bool)
	// OnFailed is called with the reason why there is no session. An error that it returns ends the
	// link. instead is a session of another link: the lanes share it, because the broker allows no
	// further connection.
	OnFailed func(err error) (why string, instead *Session, stop error)
	// OnEnded is called with a session that has ended, and returns why it has.
	OnEnded func(sess *Session) (why string)
	// OnChanged is called when the link's state has changed.
	OnChanged func()
	// SizeLimit is the size of a body that the broker has named as its limit on this connection; 0:
	// none. Lanes share what one of them has learnt. The next connection begins without.
	SizeLimit atomic.Int64

	mu   sync.Mutex
	sess *Session      // nil: no session
	own  bool          // sess is not another link's
	up   chan struct{} // closed when sess appears; re-created when it goes
	why  string        // why the connection is away, or "blocked…"; "" when all is well
}

// NewLink makes a link that is not connected; why is the reason.
func NewLink(why string) *Link { return &Link{up: make(chan struct{}), why: why} }

// Session waits until the connection is up.
func (l *Link) Session(ctx context.Context) (*Session, error) {
	for {
		l.mu.Lock()
		sess, up := l.sess, l.up
		l.mu.Unlock()
		if sess != nil && sess.Alive() {
			return sess, nil
		}
		if sess != nil { // it has ended, and keep has not noticed yet
			select {
			case <-sess.Gone:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			l.drop(sess)
			continue
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// drop takes sess out of use. It does nothing when sess is out of use already.
func (l *Link) drop(sess *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sess == sess {
		l.sess, l.up = nil, make(chan struct{})
	}
}

// Keep maintains the connection until ctx is done. It returns an error only for a login that is
// refused for good.
func (l *Link) Keep(ctx context.Context) error {
	var backoff time.Duration
	for wasUp := false; ; {
		sess, err := l.Connect(ctx, l.noteBlocked)
		if ctx.Err() != nil {
			if sess != nil {
				sess.Close(CloseTimeout)
			}
			return nil
		}
		if err != nil {
			why, instead, stop := l.OnFailed(err)
			if instead != nil {
				l.share(ctx, instead)
				continue
			}
			l.note(why)
			if stop != nil {
				return stop
			}
			if backoff = Longer(backoff); !Sleep(ctx, backoff) {
				return nil
			}
			continue
		}
		began := time.Now()
		l.serve(ctx, sess, wasUp)
		wasUp = true
		if time.Since(began) > backoffMax {
			backoff = 0
		} else if backoff = Longer(backoff); !Sleep(ctx, backoff) {
			return nil
		}
	}
}

// Longer is the next pause after one of d: twice as long within the bounds, less a random half.
func Longer(d time.Duration) time.Duration {
	d = min(max(2*d, 2*BackoffMin), backoffMax)
	return d/2 + rand.N(d/2)
}

// serve offers sess to the lanes until it ends or ctx is done.
func (l *Link) serve(ctx context.Context, sess *Session, again bool) {
	l.SizeLimit.Store(0)
	l.OnConnected(ctx, sess, again)
	l.offer(sess, true)
	select {
	case <-ctx.Done():
		l.drop(sess)
		sess.Close(CloseTimeout)
	case <-sess.Gone:
		l.drop(sess)
		l.note(l.OnEnded(sess))
		sess.wait()
	}
}

// offer gives the lanes a session, of the link's own or of another link.
func (l *Link) offer(sess *Session, own bool) {
	l.mu.Lock()
	if l.sess == nil {
		close(l.up)
	}
	l.sess, l.own, l.why = sess, own, ""
	l.mu.Unlock()
	l.OnChanged()
}

// AskAgain is how long a limit of the broker's counts that others have helped to use up: a link
// that shares another one's session asks for one of its own then.
const AskAgain = time.Minute

// share offers another link's session to the lanes, until it ends or the broker is asked again. The
// lanes keep it while the broker is asked.
func (l *Link) share(ctx context.Context, sess *Session) {
	l.offer(sess, false)
	timer := time.NewTimer(AskAgain)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-sess.Gone:
		l.drop(sess)
	}
}

// Why is why the connection is down; "" when it is up, or the lanes share another one.
func (l *Link) Why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// Own is the link's own session; nil: it has none.
func (l *Link) Own() *Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own && l.sess != nil && l.sess.Alive() {
		return l.sess
	}
	return nil
}

// note records why the connection is away ("": it is up) and has the sink log what changed.
func (l *Link) note(why string) {
	l.mu.Lock()
	l.why = why
	l.mu.Unlock()
	l.OnChanged()
}

// noteBlocked records an alarm of the broker's.
func (l *Link) noteBlocked(on bool) {
	why := ""
	if on {
		why = "blocked by the broker (memory or disk alarm)"
	}
	l.note(why)
}

// Sleep waits for d; false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
