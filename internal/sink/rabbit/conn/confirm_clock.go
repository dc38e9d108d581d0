// The confirm clock: it decides whether a broker that has not confirmed is slow, has a queue that
// is stuck, or is dead.

package conn

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// RoundEnd says how the wait for a round's answers ended.
type RoundEnd uint8

const (
	Answered  RoundEnd = iota // every message was answered, or its channel or connection was closed
	Cancelled                 // ctx is done
	// Late means that messages are unconfirmed after twice the timeout, while the broker answers.
	Late
	Dead // nothing on the connection was confirmed for the timeout, and it was given up
)

// Round is the place of a lane's messages among those of other lanes on the same connection. All
// messages of rounds that ended at or before Began were written before them.
type Round struct{ Began, Ended uint64 }

// Confirmed records that a message of a round was confirmed. The broker reads a connection in
// order, so it has read all that was written before.
func (s *Session) Confirmed(now time.Time, r Round) {
	s.lastConfirm.Store(now.UnixNano())
	for {
		read := s.readRounds.Load()
		if r.Began <= read || s.readRounds.CompareAndSwap(read, r.Began) {
			return
		}
	}
}

// ConfirmClock decides, for one round, when the broker has taken too long. It stops while the
// broker blocks, and counts from the last confirm.
//
// A message is late twice the timeout after the broker has certainly read it: something that was
// written after it is confirmed. Otherwise it may still be on its way, behind what the other lanes
// have written over a slow line. While any of that is confirmed, or written to the socket, there is
// nothing to decide. When nothing is, the broker is asked something that needs no queue: with the
// answer it has read all that was written before. (All lanes may wait for queues that are stuck,
// with nothing else on the connection.) Without an answer the connection is dead.
type ConfirmClock struct {
	Sess        *Session
	Round       Round
	Timeout     time.Duration
	Progress    time.Time // of the last write, then of the last answer seen in this round
	answersSeen int
	// when the broker had certainly read the round; zero while that is not known
	readAt time.Time
	// asks the broker without waiting; an answer is recorded by Session.Confirmed
	Ping func()
}

// Ping opens a channel at the broker, and waits for the answer or for the connection's end. The
// answer depends on no queue. On an existing channel it would wait behind earlier requests to
// queues.
func (s *Session) Ping() {
	rounds := s.Writes.Load()
	_ = s.onThrowawayChannel(func(*amqp.Channel) error { //nolint:errcheck // without an answer nothing is known
		s.Confirmed(time.Now(), Round{Began: rounds})
		return nil
	})
}

// Unanswered returns for how long the broker has answered nothing of the round. The end of a
// resource alarm starts it again.
func (c *ConfirmClock) Unanswered(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, max(c.Progress.UnixNano(), c.Sess.lastUnblock.Load())))
}

// Tick is called regularly during a round. answers is how many answers have come, and last says
// that the last message is among them. The result Answered means to go on waiting.
func (c *ConfirmClock) Tick(now time.Time, answers int, last bool) RoundEnd {
	if answers > c.answersSeen {
		c.answersSeen, c.Progress = answers, now
		c.Sess.Confirmed(now, c.Round)
	}
	if c.readAt.IsZero() && (last || c.Sess.readRounds.Load() >= c.Round.Ended) {
		c.readAt = now
	}
	past := func(limit time.Duration, since ...int64) bool {
		from := max(c.Progress.UnixNano(), c.Sess.lastUnblock.Load())
		for _, t := range since {
			from = max(from, t)
		}
		return now.UnixNano()-from >= int64(limit)
	}
	quiet := func(limit time.Duration) bool {
		return past(limit, c.Sess.lastConfirm.Load(), c.Sess.Wire.wrote.Load())
	}
	asked := c.Sess.pingedAt.Load()
	// the broker has not answered the question yet
	open := asked > max(c.Sess.lastConfirm.Load(), c.Sess.lastUnblock.Load())
	switch {
	case c.Sess.blocked.Load():
		return Answered
	case quiet(c.Timeout), open && past(c.Timeout/2, asked, c.Sess.Wire.wrote.Load()):
		c.Sess.Kill(fmt.Errorf("no confirm for %s", c.Timeout))
		return Dead
	case !c.readAt.IsZero() && past(2*c.Timeout, c.readAt.UnixNano()):
		return Late
	case !open && quiet(c.Timeout/2) && c.Sess.pingedAt.CompareAndSwap(asked, now.UnixNano()):
		c.Ping()
	}
	return Answered
}
