package fault

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// The three states in which a SIGKILL finds an event, each held by a proxy: nothing about them is a matter of luck.

// held is how many bytes count as "the thing is on its way": more than any heartbeat, less than one event.
const held = 200

func TestKilledBeforeTheEventIsSent(t *testing.T) {
	s := newStand(t)
	s.watchFlush()
	r := s.start()
	s.write(30)
	s.broker.Hold(devenv.Up)
	s.write(30)
	s.must(s.broker.WaitHeld(within(t, 10*time.Second), devenv.Up, held))
	s.must(r.Kill())
	s.broker.Cut() // what was held is gone with the connection
	s.broker.Release(devenv.Up)
	s.must(s.broker.Mend())
	s.start()
	s.check(30 + 60)
}

func TestKilledBeforeTheConfirmArrives(t *testing.T) {
	s := newStand(t)
	s.watchFlush()
	r := s.start()
	s.write(30)
	s.must(s.consumer.WaitCount(within(t, 10*time.Second), int(s.work.Committed())))
	before, _ := s.consumer.Count()
	s.broker.Hold(devenv.Down)
	s.write(30)
	s.must(s.consumer.WaitCount(within(t, 10*time.Second), before+5)) // sent, and not confirmed; later ones of their keys wait
	s.must(s.broker.WaitHeld(within(t, 10*time.Second), devenv.Down, 1))
	s.must(r.Kill())
	s.broker.Release(devenv.Down)
	s.start()
	v := s.check(30 + 60)
	if v.Duplicates == 0 {
		t.Error("nothing was sent twice: the state was not the one that is tested")
	}
}

func TestKilledBeforeTheReportIsSent(t *testing.T) {
	s := newStand(t)
	s.watchFlush()
	r := s.start()
	s.write(30)
	s.must(s.consumer.WaitCount(within(t, 10*time.Second), int(s.work.Committed())))
	s.postgres.Hold(devenv.Up)
	s.write(30)
	s.must(s.consumer.WaitCount(within(t, 10*time.Second), int(s.work.Committed())))
	s.broker.Hold(devenv.Up) // later events are read, and neither sent nor confirmed
	s.write(30)
	s.must(s.broker.WaitHeld(within(t, 10*time.Second), devenv.Up, held))
	s.must(s.postgres.WaitHeld(within(t, 10*time.Second), devenv.Up, 34))
	s.must(r.Kill())
	s.postgres.Release(devenv.Up) // a report that was written arrives after its sender's death
	s.broker.Cut()
	s.broker.Release(devenv.Up)
	s.must(s.broker.Mend())
	s.start()
	v := s.check(60 + 60)
	if v.Duplicates == 0 {
		t.Error("nothing was sent twice: the state was not the one that is tested")
	}
}
