package rabbit

import (
	"fmt"
	"time"
)

// round is when a lane's messages were written to a connection, among those of the other lanes: what was written in
// rounds that ended by began is in front of them.
type round struct{ began, ended uint64 }

// confirmed records that a message of a round was confirmed. The broker reads a connection in order, so it has read all
// that was written before.
func (s *session) confirmed(now time.Time, r round) {
	s.lastConfirm.Store(now.UnixNano())
	for {
		read := s.read.Load()
		if r.began <= read || s.read.CompareAndSwap(read, r.began) {
			return
		}
	}
}

// confirmClock decides, for one round, when the broker has taken too long. It stands still while the broker blocks, and
// counts from the last confirm.
//
// A message is late only when the broker is known to have read it: something that was written after it is confirmed.
// Otherwise it may be on its way still, behind what the other lanes have written over a slow line, and as long as any of
// that is confirmed, or written to the socket, there is nothing to decide. When nothing is, the broker is asked something
// that needs no queue: with the answer it has read all that was written before. (All lanes may wait for queues that are
// stuck, with nothing else on the connection.) Without an answer the connection is dead.
type confirmClock struct {
	sess     *session
	round    round
	timeout  time.Duration
	progress time.Time // of the last write, then of the last answer seen in this round
	answers  int
	readAt   time.Time // since when the broker is known to have read the round; zero: it is not
	ask      func()    // asks the broker, which is heard then if it answers; it does not wait
}

// ask asks the broker for a channel, and waits for it or for the connection's end. No queue has a say in that; on a channel
// that is there already the answer would wait for what a queue is asked there.
func (s *session) ask() {
	rounds := s.writes.Load()
	ch, err := s.conn.Channel()
	if err != nil {
		return
	}
	s.heard(time.Now(), rounds)
	_ = ch.Close() //nolint:errcheck // an error says that the connection has ended
}

// heard records that the broker has answered what was asked when so many rounds had been written.
func (s *session) heard(now time.Time, rounds uint64) {
	s.confirmed(now, round{began: rounds})
}

// tick looks at the clock with so many answers in, the last message's among them or not. answered means: go on waiting.
func (c *confirmClock) tick(now time.Time, answers int, last bool) end {
	if answers > c.answers {
		c.answers, c.progress = answers, now
		c.sess.confirmed(now, c.round)
	}
	if c.readAt.IsZero() && (last || c.sess.read.Load() >= c.round.ended) {
		c.readAt = now
	}
	past := func(limit time.Duration, since ...int64) bool {
		from := max(c.progress.UnixNano(), c.sess.lastUnblock.Load())
		for _, t := range since {
			from = max(from, t)
		}
		return now.UnixNano()-from >= int64(limit)
	}
	quiet := func(limit time.Duration) bool {
		return past(limit, c.sess.lastConfirm.Load(), c.sess.wire.wrote.Load())
	}
	asked := c.sess.asked.Load()
	open := asked > max(c.sess.lastConfirm.Load(), c.sess.lastUnblock.Load()) // it has not answered the question
	switch {
	case c.sess.blocked.Load():
		return answered
	case quiet(c.timeout), open && past(c.timeout/2, asked, c.sess.wire.wrote.Load()):
		c.sess.kill(fmt.Errorf("no confirm for %s", c.timeout))
		return dead
	case !c.readAt.IsZero() && past(c.timeout, c.readAt.UnixNano()):
		return late
	case !open && quiet(c.timeout/2) && c.sess.asked.CompareAndSwap(asked, now.UnixNano()):
		c.ask()
	}
	return answered
}

// answers counts what is answered by now.
func (l *lane) answers() int {
	n := 0
	for i := range l.sent {
		select {
		case <-l.sent[i].answer.Done():
			n++
		default:
		}
	}
	return n
}
